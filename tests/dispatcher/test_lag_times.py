"""How old what groups have yet to read is, in listings: over the wire, and its bounds."""

import asyncio
import os
import struct
import threading

import pytest
from stratamq_dispatcher.consume_queue import CACHED_UNITS
from stratamq_dispatcher.frame_reads import CHECKED_BYTES
from stratamq_dispatcher.group_lags import LOOK_UP_MS, LOOKED_UP_AT_ONCE, LagTimes
from stratamq_dispatcher.group_listing import GroupQueue
from stratamq_dispatcher.pulling import LEARNED_AT_ONCE

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.files.simulated import SimulatedClock
from stratamq.formats import frame_layout as layout
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES, encode_queue_unit
from tests.dispatcher.running_service import RunningService

NOW_MS = 1_000_000


def queue_of(number: int, lag: int) -> GroupQueue:
    return GroupQueue("g", "t", number, 10_000 - lag, 10_000, lag)


class Log:
    """Reads take `read_ms` for all that is asked for at once; a message at offset n was stored n ms
    after 1970."""

    def __init__(self, clock: SimulatedClock, read_ms: int = 0) -> None:
        self.clock = clock
        self.read_ms = read_ms
        self.asked: list[list[tuple[str, int, int]]] = []

    async def store_times(self, positions):
        self.asked.append(list(positions))
        self.clock.advance_ms(self.read_ms)
        return [offset for _, _, offset in positions]


def looked_up(queues, log: Log) -> list[int | None]:
    return asyncio.run(LagTimes(log.store_times, log.clock).of(queues))


def test_a_queue_that_is_read_to_its_end_costs_no_read_and_is_0():
    log = Log(SimulatedClock(NOW_MS))
    assert looked_up([queue_of(0, 0), queue_of(1, 3), queue_of(2, 0)], log) == [
        0,
        NOW_MS - 9_997,
        0,
    ]
    assert log.asked == [[("t", 1, 9_997)]]


def test_a_message_from_before_the_clock_was_set_back_is_0_old():
    assert looked_up([queue_of(0, 1)], Log(SimulatedClock(9_000))) == [0]


def test_a_page_is_read_a_bounded_number_at_a_time_those_furthest_behind_first():
    log = Log(SimulatedClock(NOW_MS))
    queues = [queue_of(number, number + 1) for number in range(2 * LOOKED_UP_AT_ONCE + 5)]
    assert looked_up(queues, log) == [NOW_MS - (10_000 - one.lag) for one in queues]
    assert [len(some) for some in log.asked] == [LOOKED_UP_AT_ONCE, LOOKED_UP_AT_ONCE, 5]
    in_order = [number for some in log.asked for _, number, _ in some]
    assert in_order == list(range(len(queues) - 1, -1, -1))


def test_on_a_slow_disk_what_is_furthest_behind_is_known_and_the_rest_is_not():
    log = Log(SimulatedClock(NOW_MS), read_ms=LOOK_UP_MS // 2)
    queues = [queue_of(number, number + 1) for number in range(10 * LOOKED_UP_AT_ONCE)]
    found = looked_up(queues, log)
    assert [len(some) for some in log.asked] == [LOOKED_UP_AT_ONCE] * 2
    unknown = 8 * LOOKED_UP_AT_ONCE
    assert found[:unknown] == [None] * unknown
    assert None not in found[unknown:]


async def test_askers_read_in_turns_and_each_for_its_time_alone():
    clock, order = SimulatedClock(NOW_MS), []

    async def store_times(positions):
        order.append(positions[0][0])
        read = len(order)
        await asyncio.sleep(0)
        assert len(order) == read  # no other lookup began meanwhile
        clock.advance_ms(LOOK_UP_MS // 5)
        return [NOW_MS] * len(positions)

    lags = LagTimes(store_times, clock)
    many = range(10 * LOOKED_UP_AT_ONCE)
    pages = [[GroupQueue("g", name, number, 0, 9, 9) for number in many] for name in "abc"]
    found = await asyncio.gather(*(lags.of(page) for page in pages))
    assert order == ["a", "b", "c", "a", "b"]
    known = [sum(one is not None for one in ages) // LOOKED_UP_AT_ONCE for ages in found]
    assert known == [2, 2, 1]


async def test_groups_are_listed_with_the_age_of_what_they_have_yet_to_read(tmp_path):
    async with RunningService(tmp_path) as service:
        log, stub = service.log, service.stub
        stored = [log.put("t", body=bytes(300_000), after_ms=1_000) for _ in range(6)]
        log.put("u")
        service.follow()
        service.clock.set_wall_ms(log.now_ms + 500)
        for group, offset in (("late", 2), ("done", 6), ("other", 5)):
            offsets = [pb.GroupOffset(topic="t", queue_id=0, offset=offset)]
            await stub.CommitOffsets(pb.CommitOffsetsRequest(group=group, offsets=offsets))

        async def ages(**asked) -> dict[str, int | None]:
            answer = await stub.ListGroups(pb.ListGroupsRequest(**asked))
            return {
                one.group: one.lag_ms if one.HasField("lag_ms") else None for one in answer.groups
            }

        unasked = {"late": None, "done": None, "other": None}
        assert await ages() == unasked
        now_ms = log.now_ms + 500
        late_ms, other_ms = (now_ms - stored[at].store_ms for at in (2, 5))
        assert await ages(with_lag_ms=True) == {
            "late": late_ms,
            "done": 0,
            "other": other_ms,
        }
        assert await ages(with_lag_ms=True, group="late") == {"late": late_ms}
        log.delete_below(1 << 20)
        log.put("u")
        service.follow()
        assert stored[2].offset < 1 << 20 <= stored[5].offset
        assert await ages(with_lag_ms=True) == {"late": None, "done": 0, "other": other_ms}


async def test_one_groups_queues_come_in_pages_without_those_of_others(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(60, topics=2, queues=3)
        service.follow()
        known = sorted(service.log.next_queue_offset)
        for group in ("a", "g", "z"):
            offsets = [pb.GroupOffset(topic=t, queue_id=q, offset=1) for t, q in known]
            request = pb.CommitOffsetsRequest(group=group, offsets=offsets)
            await service.stub.CommitOffsets(request)
        asked, found = pb.ListGroupsRequest(group="g", max_entries=2, with_lag_ms=True), []
        while True:
            page = await service.stub.ListGroups(asked)
            assert len(page.groups) <= 2
            found += page.groups
            asked.position, asked.incarnation = page.next_position, page.incarnation
            if not page.next_position:
                break
        assert {one.group for one in found} == {"g"}
        assert sorted((one.topic, one.queue_id) for one in found) == known
        assert all(one.HasField("lag_ms") for one in found)
        none = await service.stub.ListGroups(pb.ListGroupsRequest(group="unknown"))
        assert (list(none.groups), none.next_position) == ([], 0)


DAMAGED = 1
"""The queue offset of the message that is damaged."""


def not_there(frame: bytes) -> bytes:
    return bytes(len(frame))


def before_1970(frame: bytes) -> bytes:
    at = layout.BORN_HOST_POSITION + 8
    return frame[:at] + struct.pack(">q", -(1 << 63)) + frame[at + 8 :]


def in_its_body(frame: bytes) -> bytes:
    return frame.replace(b"body", b"bodY")


@pytest.mark.parametrize("body_bytes", [100, 100_000])
@pytest.mark.parametrize("damage", [not_there, before_1970, in_its_body])
async def test_a_damaged_message_has_no_age_and_the_others_have_theirs(
    tmp_path, body_bytes, damage
):
    async with RunningService(tmp_path) as service:
        log = service.log
        stored = [log.put("t", body=b"body" * (body_bytes // 4)) for _ in range(3)]
        other = log.put("u")
        service.follow()
        service.clock.set_wall_ms(log.now_ms)
        for topic, offset in (("t", DAMAGED), ("u", 0)):
            offsets = [pb.GroupOffset(topic=topic, queue_id=0, offset=offset)]
            await service.stub.CommitOffsets(pb.CommitOffsetsRequest(group="g", offsets=offsets))
        message = stored[DAMAGED]
        segment = next((tmp_path / "commitlog").iterdir())
        with segment.open("r+b") as file:
            os.pwrite(file.fileno(), damage(message.frame), message.offset)
        answer = await service.stub.ListGroups(pb.ListGroupsRequest(with_lag_ms=True))
        ages = {one.topic: one.lag_ms if one.HasField("lag_ms") else None for one in answer.groups}
        # Of a large frame the body is not read for its age.
        seen = damage is not in_its_body or body_bytes < CHECKED_BYTES
        expected = None if seen else log.now_ms - message.store_ms
        assert ages == {"t": expected, "u": log.now_ms - other.store_ms}


async def test_a_unit_that_leads_to_another_message_gives_no_age(tmp_path):
    async with RunningService(tmp_path) as service:
        stored = [service.log.put("t") for _ in range(3 * CACHED_UNITS)]
        service.follow()
        service.engine.saver.flush()
        await service.until(lambda: service.engine.is_settled)
        path = tmp_path / service.engine.queues.geometry.path("consumequeue/t/0", DAMAGED)
        wrong = encode_queue_unit(stored[0].offset, len(stored[0].frame), 0)
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), wrong, DAMAGED * QUEUE_UNIT_BYTES)
        asked = [("t", 0, DAMAGED), ("t", 0, DAMAGED + 1)]
        times = await service.puller.store_times(asked)
        assert times == [None, stored[DAMAGED + 1].store_ms]


def counted(monkeypatch, cold, name):
    """A list to which each call of the method of cold reads adds for how many it asks."""
    counts: list[int] = []
    read = getattr(cold, name)

    def counting(asked, view):
        counts.append(len(asked))
        return read(asked, view)

    monkeypatch.setattr(cold, name, counting)
    return counts


async def test_of_those_that_give_up_one_read_is_in_the_lane(tmp_path, monkeypatch):
    async with RunningService(tmp_path) as service:
        stored = [service.log.put("t") for _ in range(2)]
        service.follow()
        reads = counted(monkeypatch, service.cold, "store_times")
        lane_is_free = threading.Event()
        service.reading.submit(lane_is_free.wait, lambda *_: None)
        for _ in range(20):
            asking = asyncio.create_task(service.puller.store_times([("t", 0, 0)]))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asking.cancel()
        last = asyncio.create_task(service.puller.store_times([("t", 0, 0), ("t", 0, 1)]))
        lane_is_free.set()
        assert await last == [one.store_ms for one in stored]
        assert reads == [1, 2]


async def test_what_several_ask_for_at_once_is_learned_once(tmp_path, monkeypatch):
    async with RunningService(tmp_path) as service:
        for number in range(2 * LEARNED_AT_ONCE + 1):
            service.log.put("t", number)
        service.follow()
        queues = list(service.engine.queues)
        for queue in queues:
            queue.newest_ms = -1
        learned = counted(monkeypatch, service.cold, "begin_and_newest")
        await asyncio.gather(*(service.puller.learn(queues) for _ in range(5)))
        assert learned == [LEARNED_AT_ONCE, LEARNED_AT_ONCE, 1]
        assert min(queue.newest_ms for queue in queues) > 0
