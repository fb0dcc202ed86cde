"""Pulls that are answered from what was fetched with earlier ones, and offsets that pulls carry."""

import asyncio
import json
import random
import struct

import pytest
from stratamq_gateway.commits import MAX_FAILED, Commits
from stratamq_gateway.consuming import (
    CLASS_FILTER,
    HAS_SUBSCRIPTION,
    CommittedOffset,
    PullMessages,
    QueueOffset,
)
from stratamq_gateway.frames import Answer, Command, encode_answer
from stratamq_gateway.group_rules import GroupRules
from stratamq_gateway.pulls_at_once import answer_at_once
from stratamq_gateway.read_ahead import (
    FOLLOWS_NS,
    KEPT_NS,
    MAX_ANSWERS,
    MAX_KEPT_BYTES,
    FetchAhead,
    QueuePull,
)

from stratamq.client import connect
from stratamq.errors import NotPermittedError, UnavailableError
from stratamq.files.simulated_time import SimulatedClock
from stratamq.formats.message_status import PullStatus
from stratamq.service.caller import Caller
from stratamq.service.entrance import Entrance
from stratamq.service.front import Frames
from tests.gateway.remoting import Remoting, pull, send
from tests.gateway.test_gateway import OK, ROOMS, SETTINGS, address
from tests.support.brokers import Broker
from tests.support.sampling import few
from tests.support.waiting import until

ONE_ANSWER, FOLLOWS_MS = 32, FOLLOWS_NS // 1_000_000


def frame(queue_offset: int, size: int) -> bytes:
    return struct.pack(">i16xq", size, queue_offset).ljust(size, b"x")


class OneQueue:
    """What a client's pulls find: frames of sizes, those of `hidden` offsets filtered out."""

    def __init__(self, sizes: list[int], hidden: set[int] = frozenset()) -> None:
        self.frames = [frame(number, size) for number, size in enumerate(sizes)]
        self.hidden = hidden
        self.calls = 0

    async def pull_frames(
        self, topic, queue_id, offset, *, max_messages, tags_codes, wait_ms=0, max_bytes=0
    ) -> Frames:
        self.calls += 1
        most, most_bytes = (max_messages, max_bytes) if max_bytes else (ONE_ANSWER, 262_144)
        most, found, at = min(most, max_messages), [], offset
        while at < len(self.frames) and len(found) < most:
            if at not in self.hidden:
                if found and sum(map(len, found)) + len(self.frames[at]) > most_bytes:
                    break
                found.append(self.frames[at])
            at += 1
        end = len(self.frames)
        if offset >= end:
            return Frames(PullStatus.OFFSET_OVERFLOW_ONE, offset, 0, end, memoryview(b""))
        status = PullStatus.FOUND if found else PullStatus.NO_MATCHED_MESSAGE
        return Frames(status, at, 0, end, memoryview(b"".join(found)))

    pull = pull_frames  # what the gateway's own client finds, too

    def finish(self, work) -> asyncio.Task:
        return asyncio.get_running_loop().create_task(work)


def wanted(
    offset: int, most: int = ONE_ANSWER, topic: str = "orders", wait_ms: int = 0
) -> QueuePull:
    return QueuePull(topic, 0, offset, (), most, wait_ms)


async def read_all(
    ahead: FetchAhead, queue: OneQueue, clock: SimulatedClock, pause_ms: int
) -> list:
    """Every answer until the queue's end, with a pause before each pull."""
    answers, offset = [], 0
    while True:
        found = await ahead.pull(queue, wanted(offset))
        if found.status is PullStatus.OFFSET_OVERFLOW_ONE:
            return answers
        answers.append(bytes(found.frames))
        offset = found.next_offset
        clock.advance_ms(pause_ms)


@pytest.mark.parametrize("seed", few(range(100), 10))
async def test_a_reader_gets_each_message_once_in_answers_like_the_first(seed):
    chance = random.Random(seed)
    sizes = [chance.choice([100, 1_000, 50_000]) for _ in range(chance.randrange(1, 1_500))]
    hidden = {number for number in range(len(sizes)) if chance.random() < 0.3}
    queue, clock = OneQueue(sizes, hidden), SimulatedClock()
    ahead = FetchAhead(clock, queue)
    answers = await read_all(ahead, queue, clock, 1)
    shown = [one for number, one in enumerate(queue.frames) if number not in hidden]
    assert b"".join(answers) == b"".join(shown)
    assert max(map(len, answers)) <= 262_144 + 50_000
    assert ahead.kept_bytes == 0, "nothing is left of a queue that was read to its end"


class NoMembers:
    def subscription(self, group: str, topic: str) -> None:
        return None

    def lacks(self, group: str, topic: str, version: int) -> bool:
        return False


class Told:
    """A connection, as far as `answer_at_once` uses it."""

    def __init__(self, client: OneQueue) -> None:
        self.client = client
        self.written: list[bytes] = []

    def caller(self, access: object, command: Command) -> Caller:
        return Caller("10.0.0.1", 1)

    def known_client(self, caller: Caller) -> OneQueue:
        return self.client

    def failure(self, command: Command, method: str, error: Exception, request: object) -> Answer:
        return Answer(1, remark=str(error))

    def write(self, pieces: list[bytes | memoryview]) -> None:
        self.written.append(b"".join(pieces))


def entrance(**options: object) -> Entrance:
    parts = {"access": None, "limits": None, "recorder": None, **options}
    return Entrance(*parts.values(), "PULL_MESSAGE", None)


def asked_for(offset: int, opaque: int = 0, **others: object) -> Command:
    fields = {
        "consumerGroup": "billing", "topic": "orders", "queueId": 0, "queueOffset": offset,
        "maxMsgNums": ONE_ANSWER, "sysFlag": HAS_SUBSCRIPTION, "subscription": "*", **others,
    }  # fmt: skip
    return Command(11, {name: str(value) for name, value in fields.items()}, opaque=opaque)


def puller(queue: OneQueue, clock: SimulatedClock) -> PullMessages:
    return PullMessages(NoMembers(), GroupRules(queue, clock), clock, Commits(), queue)


async def test_what_is_here_is_answered_at_once_as_a_task_would_answer_it():
    clock, queue = SimulatedClock(), OneQueue([100] * ONE_ANSWER * 20)
    slow, fast, told = puller(queue, clock), puller(queue, clock), Told(queue)
    offset = given = 0
    while offset < len(queue.frames):
        command = asked_for(offset, opaque=7 + offset)
        answer = await slow.answer(queue, None, slow.decode(command))
        expected = b"".join(encode_answer(answer, command.opaque))
        if answer_at_once(told, command, entrance(), fast):
            given += 1
            found = told.written.pop()
        else:
            answer = await fast.answer(queue, None, fast.decode(command))
            found = b"".join(encode_answer(answer, command.opaque))
        head = 8 + int.from_bytes(expected[5:8])
        assert found[-len(answer.body) :] == expected[head:] == bytes(answer.body)
        assert json.loads(found[8 : -len(answer.body)]) == json.loads(expected[8:head])
        assert found[:4] == struct.pack(">I", len(found) - 4)
        offset += ONE_ANSWER
    assert 12 < given < 20


async def test_what_a_filter_or_a_class_judges_is_not_given_at_once():
    clock, queue = SimulatedClock(), OneQueue([100] * ONE_ANSWER * 20)
    handler, told = puller(queue, clock), Told(queue)
    for offset in (0, ONE_ANSWER):
        await handler.answer(queue, None, handler.decode(asked_for(offset)))
    here = 2 * ONE_ANSWER
    for others in (
        {"expressionType": "SQL92", "subscription": "a = 1"},
        {"expressionType": "SQL92", "subscription": "a ="},
        {"sysFlag": HAS_SUBSCRIPTION | CLASS_FILTER},
        {"sysFlag": 0},
        {"queueId": "x"},
    ):
        assert not answer_at_once(told, asked_for(here, **others), entrance(), handler)
    assert answer_at_once(told, asked_for(here), entrance(), handler)


async def test_where_permissions_are_checked_nothing_is_given_at_once():
    clock, queue = SimulatedClock(), OneQueue([100] * ONE_ANSWER * 20)
    handler, told = puller(queue, clock), Told(queue)
    for offset in (0, ONE_ANSWER):
        await handler.answer(queue, None, handler.decode(asked_for(offset)))
    command = asked_for(2 * ONE_ANSWER)
    for options in ({"access": object()}, {"recorder": object()}):
        assert not answer_at_once(told, command, entrance(**options), handler)
    assert answer_at_once(told, command, entrance(), handler)


async def test_a_fast_reader_costs_a_call_for_many_pulls_and_a_slow_one_fetches_nothing_ahead():
    for pause_ms, is_slow in ((FOLLOWS_MS, False), (FOLLOWS_MS + 1, True)):
        queue, clock = OneQueue([100] * ONE_ANSWER * 100), SimulatedClock()
        answers = await read_all(FetchAhead(clock, queue), queue, clock, pause_ms)
        assert [len(one) for one in answers] == [100 * ONE_ANSWER] * 100
        if is_slow:
            assert queue.calls == 101
        else:
            assert queue.calls < 100 / MAX_ANSWERS + 5


async def test_what_is_too_old_is_fetched_again():
    queue, clock = OneQueue([100] * 1_000), SimulatedClock()
    ahead = FetchAhead(clock, queue)
    offset = 0
    for _ in range(3):
        offset = (await ahead.pull(queue, wanted(offset))).next_offset
    assert ahead.kept_bytes > 0
    queue.frames = [frame(number, 200) for number in range(1_000)]
    clock.advance_ms(KEPT_NS // 1_000_000 + 1)
    assert (await ahead.pull(queue, wanted(offset))).frames[:4] == struct.pack(">i", 200)
    assert ahead.kept_bytes == 0


async def test_a_pull_of_fewer_messages_gets_no_more():
    queue, clock = OneQueue([100] * 1_000), SimulatedClock()
    ahead = FetchAhead(clock, queue)
    offset = (await ahead.pull(queue, wanted(0))).next_offset
    offset = (await ahead.pull(queue, wanted(offset))).next_offset
    found = await ahead.pull(queue, wanted(offset, 5))
    assert (len(found.frames), found.next_offset) == (500, offset + 5)
    assert (await ahead.pull(queue, wanted(offset + 5))).frames[4:] == queue.frames[offset + 5][
        4:
    ] + (b"".join(queue.frames[offset + 6 : offset + 5 + ONE_ANSWER]))


class SlowQueue(OneQueue):
    """Its answers come when they are let through."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(sizes)
        self.open = asyncio.Event()
        self.open.set()
        self.refuses = False

    async def pull_frames(self, *where, **options) -> Frames:
        if self.refuses:
            self.calls += 1
            raise UnavailableError("away")
        found = await super().pull_frames(*where, **options)
        await self.open.wait()
        return found


async def one_answer_from_the_end(queue: SlowQueue) -> tuple[FetchAhead, int]:
    """A reader that has one more answer here. Its place."""
    ahead, offset = FetchAhead(SimulatedClock(), queue), 0
    for _ in range(4):
        offset = (await ahead.pull(queue, wanted(offset))).next_offset
    return ahead, offset


async def test_the_next_answers_are_on_their_way_while_the_reader_works_on_the_last_one():
    queue = SlowQueue([100] * 1_000)
    ahead, offset = await one_answer_from_the_end(queue)
    calls = queue.calls
    queue.open.clear()
    offset = (await ahead.pull(queue, wanted(offset))).next_offset
    await asyncio.sleep(0)  # a task that has begun is called
    assert queue.calls == calls + 1
    next_pull = asyncio.create_task(ahead.pull(queue, wanted(offset)))
    await asyncio.sleep(0)
    queue.open.set()
    found = await next_pull
    assert (len(found.frames), queue.calls) == (ONE_ANSWER * 100, calls + 1)


async def test_a_reader_is_not_told_of_an_error_that_is_over():
    queue = SlowQueue([100] * 1_000)
    ahead, offset = await one_answer_from_the_end(queue)
    queue.refuses = True
    calls = queue.calls
    offset = (await ahead.pull(queue, wanted(offset))).next_offset
    await asyncio.sleep(0)  # a task that has begun is called
    assert queue.calls == calls + 1
    queue.refuses = False
    assert (await ahead.pull(queue, wanted(offset))).next_offset == offset + ONE_ANSWER
    queue.refuses = True
    with pytest.raises(UnavailableError):
        await ahead.pull(queue, wanted(offset + ONE_ANSWER))


async def test_large_answers_are_fetched_whole():
    """A second call for what one call has cut would cost as much as it saves."""
    queue = OneQueue([5_000] * 1_000)
    ahead, offset, answers = FetchAhead(SimulatedClock(), queue), 0, []
    while (found := await ahead.pull(queue, wanted(offset))).status is PullStatus.FOUND:
        answers.append(len(found.frames) // 5_000)
        offset = found.next_offset
    assert answers == [ONE_ANSWER] * (1_000 // ONE_ANSWER) + [1_000 % ONE_ANSWER]


class HeldQueue(OneQueue):
    """Its end is told when `news` are there."""

    def __init__(self) -> None:
        super().__init__([])
        self.news = asyncio.Event()

    async def pull(self, *where, **options) -> Frames:
        self.calls += 1
        await self.news.wait()
        if not self.frames:
            raise UnavailableError("stops")
        return await self.pull_frames(*where, **options)


async def test_readers_that_wait_for_the_same_share_a_call():
    queue = HeldQueue()
    ahead = FetchAhead(SimulatedClock(), queue)
    pulls = [asyncio.create_task(ahead.pull(queue, wanted(0, wait_ms=9))) for _ in range(50)]
    other = asyncio.create_task(ahead.pull(queue, wanted(0, topic="others", wait_ms=9)))
    await asyncio.sleep(0)
    pulls.pop().cancel()
    await asyncio.sleep(0.01)
    assert queue.calls == 2
    queue.frames = [frame(0, 100)]
    queue.news.set()
    found = await asyncio.gather(*pulls, other)
    assert {bytes(one.frames) for one in found} == {queue.frames[0]}


async def test_those_who_wait_get_the_error_and_the_next_one_asks_again():
    queue = HeldQueue()
    ahead = FetchAhead(SimulatedClock(), queue)
    queue.news.set()
    pulls = [ahead.pull(queue, wanted(0, wait_ms=9)) for _ in range(3)]
    errors = await asyncio.gather(*pulls, return_exceptions=True)
    assert [type(error) for error in errors] == [UnavailableError] * 3
    queue.frames = [frame(0, 100)]
    assert (await ahead.pull(queue, wanted(0, wait_ms=9))).next_offset == 1


async def test_what_is_kept_of_all_readers_has_a_bound():
    queue, clock = OneQueue([7_000] * 600), SimulatedClock()
    ahead = FetchAhead(clock, queue)
    for number in range(200):
        topic = f"t{number}"
        offset = (await ahead.pull(queue, wanted(0, topic=topic))).next_offset
        await ahead.pull(queue, wanted(offset, topic=topic))
        assert ahead.kept_bytes <= MAX_KEPT_BYTES
    assert ahead.kept_bytes > MAX_KEPT_BYTES // 2


# --- offsets ---


class Committed:
    """A front's client that notes what is committed."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[tuple[str, int], int]]] = []
        self.error: Exception | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def finish(self, work) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def commit_offsets(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.calls.append((group, dict(offsets)))

    async def committed_offsets(self, group: str, topic: str) -> dict[tuple[str, int], int]:
        return {one: offset for _, offsets in self.calls for one, offset in offsets.items()}


QUEUE, NEXT = ("orders", 0), ("orders", 1)


async def test_offsets_that_pulls_carry_are_committed_together_and_none_behind_a_newer_one():
    client, commits = Committed(), Commits()
    for offset in range(100):
        commits.begin(client, "billing", QUEUE, offset)
        commits.begin(client, "billing", NEXT, offset)
    await commits.commit(client, "billing", QUEUE, 200)
    assert client.calls == [("billing", {QUEUE: 200, NEXT: 99})]
    commits.begin(client, "billing", NEXT, 99)
    commits.begin(client, "billing", QUEUE, 201)
    await asyncio.gather(*(commits.commit(client, "other", ("orders", n), n) for n in range(4)))
    assert client.calls[1:] == [
        ("billing", {QUEUE: 201}),
        ("other", {("orders", number): number for number in range(4)}),
    ]


async def test_what_a_pull_carries_is_committed_without_a_further_request():
    client, commits = Committed(), Commits()
    commits.begin(client, "billing", QUEUE, 5)
    while not client.calls:
        await asyncio.sleep(0.01)
    assert client.calls == [("billing", {QUEUE: 5})]


async def test_a_commit_that_has_begun_is_done_when_its_request_is_cancelled():
    client, commits = Committed(), Commits()
    asked = asyncio.create_task(commits.commit(client, "billing", QUEUE, 5))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(*client.tasks)
    assert asked.cancelled() and client.calls == [("billing", {QUEUE: 5})]


async def test_who_asks_how_far_a_group_is_sees_what_has_come_to_be_committed():
    """A consumer that has left a moment ago has said how far it was, without waiting."""
    client, commits = Committed(), Commits()
    said = [
        asyncio.create_task(commits.commit(client, "billing", ("orders", number), 5))
        for number in range(4)
    ]
    await asyncio.sleep(0)
    for one in said:
        one.cancel()  # its connection ends
    query = CommittedOffset(commits)
    for number in reversed(range(4)):
        answer = await query.answer(client, None, QueueOffset("billing", "orders", number))
        assert answer.fields == {"offset": 5}


async def test_an_offset_that_cannot_be_committed_refuses_the_next_pull_of_its_group():
    client, commits = Committed(), Commits()
    client.error = NotPermittedError("not yours")
    with pytest.raises(NotPermittedError):
        await commits.commit(client, "billing", QUEUE, 5)
    commits.begin(client, "other", QUEUE, 5)
    with pytest.raises(NotPermittedError):
        commits.begin(client, "billing", QUEUE, 5)
    client.error = None
    await commits.commit(client, "billing", QUEUE, 5)
    assert client.calls[-1] == ("billing", {QUEUE: 5})


def test_a_consumer_that_pulls_fast_gets_all_and_its_offsets_are_committed(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start(ROOMS)
        with Remoting(address(broker)) as client, connect(broker.root) as direct:
            for number in range(300):
                assert send(client, "orders", b"%d" % number).code == OK
            until(lambda: direct.queues("orders")[0].max_offset == 300, "all are dispatched")
            offset, frames = 0, b""
            while (
                found := pull(client, "orders", offset, sysFlag=5, commitOffset=offset)
            ).code == OK:
                frames += found.body
                assert found.fields["maxOffset"] == "300"
                offset = int(found.fields["nextBeginOffset"])
            assert offset == 300
            assert frames == bytes(
                direct.pull("orders", 0, 0, max_messages=300, max_bytes=1 << 20).frames
            )
            until(
                lambda: direct.committed_offsets("billing") == {("orders", 0): 300},
                "the last pull's offset is committed",
            )


async def test_groups_whose_offsets_cannot_be_committed_are_bounded():
    client, commits = Committed(), Commits()
    client.error = NotPermittedError("not yours")
    for number in range(MAX_FAILED + 1):
        with pytest.raises(NotPermittedError):
            await commits.commit(client, f"g{number}", QUEUE, 5)
    commits.begin(client, "g0", QUEUE, 5)
    for number in range(1, MAX_FAILED + 1):
        with pytest.raises(NotPermittedError):
            commits.begin(client, f"g{number}", QUEUE, 5)
