"""Workers of a shared group that want certain tags: others are finished, and not handed out."""

import random
from dataclasses import replace

import pytest
from stratamq_commitlog.messages import PutMessage
from stratamq_delivery import reading, sharing
from stratamq_delivery.entries import Configured
from stratamq_delivery.reading import MessageReader
from stratamq_delivery.records import GroupPlace
from stratamq_torture.deliveries.service import BORN

from stratamq.client import connect
from stratamq.errors import InvalidRequestError
from stratamq.follow.queues import PulledFrames
from stratamq.formats.frame import decode, encode
from stratamq.formats.properties import MESSAGE_GROUP
from tests.cli.processes import stratamq
from tests.delivery.test_handing_out import PLACE, WISH, answer, broker, run, singles
from tests.delivery.test_shared_reader import ROOMS
from tests.support.brokers import Broker
from tests.support.waiting import until

__all__ = ["broker"]
RED = replace(WISH, tags=("red",))


def put(broker, *tags: str, **properties: str) -> None:
    for tag in tags:
        message = PutMessage(
            "orders", tag.encode(), BORN, 0, properties={"TAGS": tag, **properties}
        )
        broker.log.put([message], False, lambda _: None)
    run(broker, "dispatch")


async def tags_of(broker, wish) -> list[str]:
    handed = singles(await answer(broker, broker.service.sharing.receive(wish), "dispatch"))
    return [decode(one.frame).properties["TAGS"] for one in handed]


async def test_others_are_finished_with_the_hand_out_behind_them(broker):
    put(broker, "blue", "red", "blue", "blue", "red", "blue", "red")
    assert await tags_of(broker, replace(RED, most=2)) == ["red", "red"]
    queue = broker.service.groups.queue(PLACE)
    assert (queue.floor, queue.next, queue.unfinished) == (1, 6, 2)
    assert await tags_of(broker, RED) == ["red"]
    assert await tags_of(broker, WISH) == []


async def test_of_several_tags_each_is_wanted_and_a_message_without_any_is_not(broker):
    put(broker, "red", "blue", "green")
    broker.log.put([PutMessage("orders", b"none", BORN, 0)], False, lambda _: None)
    run(broker, "dispatch")
    assert await tags_of(broker, replace(WISH, tags=("blue", "red"))) == ["red", "blue"]
    assert broker.service.groups.queue(PLACE).next == 4


async def test_what_comes_again_is_for_workers_that_want_its_tag(broker):
    """Another worker, which wants all, has let the time of these pass."""
    put(broker, "blue", "red", "blue")
    assert await tags_of(broker, WISH) == ["blue", "red", "blue"]
    broker.clock.advance_ms(WISH.invisible_ms)
    assert await tags_of(broker, RED) == ["red"]
    queue = broker.service.groups.queue(PLACE)
    assert (queue.floor, queue.unfinished) == (1, 1)


async def test_a_long_stretch_of_others_takes_few_calls(broker):
    put(broker, *["blue"] * 3_000, "red")
    asked, pull = [], broker.queues.pull

    async def counted(*arguments):
        asked.append(arguments)
        return await pull(*arguments)

    broker.queues.pull = counted
    assert await tags_of(broker, RED) == ["red"]
    assert [one[2] for one in asked] == [0, 1_024]
    put(broker, "blue")
    assert await tags_of(broker, RED) == []
    assert len(asked) == 3


async def test_a_worker_looks_on_behind_others_without_waiting(broker, monkeypatch):
    monkeypatch.setattr(sharing, "READ_S", 60)  # on a busy machine it is over too soon
    monkeypatch.setattr(reading, "AHEAD_MESSAGES", 10)
    monkeypatch.setattr(reading, "LOOKED_AT", 20)
    put(broker, *["blue"] * 100, "red")
    assert await tags_of(broker, RED) == ["red"]


async def test_a_worker_waits_for_its_tag_while_others_pass(broker):
    put(broker, "blue")
    call = broker.service.sharing.receive(replace(RED, wait_ms=60_000))
    task = answer(broker, call, "dispatch")
    put(broker, "blue", "red")
    assert [decode(one.frame).properties["TAGS"] for one in singles(await task)] == ["red"]


async def test_a_group_in_order_leaves_others_out_too(broker):
    await answer(broker, broker.service.sharing.configure("billing", Configured(ordered=True)))
    put(broker, "blue", "red", "blue", "red", **{MESSAGE_GROUP: "one"})
    sharing, found = broker.service.sharing, []
    for _ in range(8):
        handed = singles(await answer(broker, sharing.receive(RED), "dispatch"))
        found += [decode(one.frame).queue_offset for one in handed]
        receipts = [one.receipt for one in handed]
        await answer(broker, sharing.acknowledge("billing", "orders", receipts))
    assert found == [1, 3]
    assert broker.service.groups.queue(PLACE).floor == 4


class Dispatcher:
    """A queue whose messages have one of two tags."""

    def __init__(self, seed: int) -> None:
        self.red = [random.Random(seed).random() < 0.2 for _ in range(3_000)]

    async def pull(self, topic, queue_id, offset, most, wait_ms, max_bytes, tags=()):
        looked_to = min(offset + max(800, most), len(self.red))
        frames, found = [], 0
        for number in range(offset, looked_to):
            if self.red[number]:
                if found == most:
                    looked_to = number
                    break
                found += 1
                frames.append(
                    encode(
                        topic=b"orders",
                        body=b"",
                        born_host=bytes(8),
                        store_host=bytes(8),
                        queue_offset=number,
                    )
                )
        return PulledFrames(b"".join(frames), 0, len(self.red), looked_to)


@pytest.mark.parametrize("seed", range(20))
async def test_each_message_is_handed_out_or_left_out_once(seed):
    """Wherever a queue is begun again, and whatever was read ahead before."""
    chance, dispatcher = random.Random(seed), Dispatcher(seed)
    reader, start = MessageReader(dispatcher), 0
    place = GroupPlace("billing", "orders", 0, 0)
    for _ in range(200):
        if chance.random() < 0.1:
            start = chance.randrange(len(dispatcher.red))
        end = chance.randrange(start, len(dispatcher.red) + 1)
        read = await reader.tagged(place, start, chance.randint(1, 64), end, ("red",))
        given = [offset for a, b in read.runs for offset in range(a, b)]
        others = [offset for a, b in read.others for offset in range(a, b)]
        seen = sorted(given + others)
        assert seen == list(range(start, start + len(seen)))
        assert all(dispatcher.red[offset] for offset in given)
        assert not any(dispatcher.red[offset] for offset in others)
        assert seen or start == end
        start += len(seen)


async def test_the_tags_of_what_is_read_ahead_take_memory_too(monkeypatch):
    """Workers with other ones each time leave messages that none of them asks for again."""
    monkeypatch.setattr(reading, "KEPT_AHEAD_BYTES", 1 << 20)
    dispatcher, place = Dispatcher(1), GroupPlace("billing", "orders", 0, 0)
    reader, asked, pull = MessageReader(dispatcher), list[int](), dispatcher.pull

    async def counted(*arguments):
        asked.append(arguments[2])
        return await pull(*arguments)

    dispatcher.pull = counted
    wanted = [("red", *[f"{number} {other}" for other in range(2_000)]) for number in range(20)]
    begins = []
    for tags in wanted:
        read = await reader.tagged(place, 0, 1, 3_000, tags)
        begins.append(read.runs[-1][1])
    asked.clear()
    for tags, begin in zip(reversed(wanted), reversed(begins), strict=True):
        await reader.tagged(place, begin, 1, 3_000, tags)
    assert 10 < len(asked) < 20, "the oldest were let go"


@pytest.fixture
def real(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs") as real:
        real.start(ROOMS)
        yield real


def test_tags_of_one_hash_are_told_apart_by_clients_and_commands(real):
    with connect(real.root) as client, client.producer() as producer:
        for number in range(200):
            producer.send("orders", b"%d" % number, tag=("Aa", "BB")[number % 2], queue_id=0)
        producer.flush()
        with client.subscribe("orders", "billing", tags=["Aa"]) as reader:
            found = []
            while len(found) < 50:
                found += (some := reader.receive(20))
                reader.ack(some)
        assert [int(one.body) for one in found] == list(range(0, 200, 2))[: len(found)]
        wanted = ("--group", "billing", "--shared", "--tag", "Aa", "--raw")
        rest = [
            int(line)
            for line in stratamq("consume", "orders", *wanted, data=real.root).stdout.split()
        ]
        assert [int(one.body) for one in found] + rest == list(range(0, 200, 2))

        # An expression, as `consume` takes it: not the tags A, a, | and the others.
        with client.subscribe("orders", "audit", tags="Aa || C") as reader:
            found = []
            while len(found) < 100 and (some := reader.receive(200)):
                reader.ack(some)
                found += some
        assert [int(one.body) for one in found] == list(range(0, 200, 2))

        def is_done() -> bool:
            return client.committed_offsets("billing")["orders", 0] == 200

        until(is_done, "all is finished")
        for tags in ([""], ["x" * 20_000]):
            with (
                client.subscribe("orders", "billing", tags=tags) as reader,
                pytest.raises(InvalidRequestError, match="tags have"),
            ):
                reader.receive()
