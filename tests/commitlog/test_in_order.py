"""A producer's batches stay in order when the log refuses one of them for now: the producer's
outbox and the log's stream, with a disk that is full from time to time."""

import asyncio
import random
from collections.abc import AsyncIterator

import numpy as np
import pytest
from stratamq_commitlog.messages import FrameRun, KnownPlace
from stratamq_commitlog.servicer.append_codec import answers_response
from stratamq_commitlog.use_cases.append_stream import AppendOpening, AppendStream, SentBatch
from stratamq_commitlog.write.topic_table import TopicConfig

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.client.append_messages import outcome_of
from stratamq.client.batching import Batching, Outbox, size_bound
from stratamq.client.numbering import LogPlace, Numbering
from stratamq.client.units import Batch, BatchOutcome, BatchRun
from stratamq.errors import (
    BusyError,
    InvalidRequestError,
    NotWritableError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.batch_frames import FrameShape
from stratamq.formats.frame import Frame
from stratamq.formats.hosts import encode_host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.topic_types import MessageType
from tests.support.logs import BORN, Store, batch

PRODUCER = 11
SHAPE = FrameShape(encode_host(BORN), producer=PRODUCER)
NEVER_NS = 1 << 60
MessagePlace = tuple[Batch, BatchRun, int]


def outbox_of(batch_messages: int, delivery_ns: int = NEVER_NS) -> Outbox:
    batching = Batching(100_000, batch_messages, 4, 0, delivery_ns=delivery_ns)
    return Outbox(batching, Numbering(random.Random(PRODUCER)))


class Producer:
    """An outbox, and one stream at a time to the log."""

    def __init__(self, store: Store, seed: int = 0, delivery_ns: int = NEVER_NS) -> None:
        self.store, self.chance = store, random.Random(seed)
        self.outbox = outbox_of(batch_messages=3, delivery_ns=delivery_ns)
        self.outbox.flushes = 1
        self.added = self.now_ns = 0
        self.open()

    def open(self) -> None:
        self.moving = False
        opening = AppendOpening(PRODUCER, in_order=self.outbox.in_order)
        self._wire: asyncio.Queue[SentBatch | None] = asyncio.Queue()
        self.stream = AppendStream(self.store.log, BORN, opening)
        self.answers = self.stream.run(self._sent(self._wire), lambda sent: sent)
        self.outbox.place = LogPlace(self.store.log.generation, self.store.end())
        self._reading = asyncio.ensure_future(self._read())

    async def _sent(self, wire: "asyncio.Queue[SentBatch | None]") -> AsyncIterator[SentBatch]:
        while (sent := await wire.get()) is not None:
            yield sent

    async def _read(self) -> None:
        async for answers in self.answers:
            response = pb.AppendStreamResponse.FromString(answers_response(answers))
            for result in response.results:
                outcome = outcome_of(result)
                elsewhere = is_elsewhere(outcome.error)
                self.moving |= elsewhere
                self.outbox.acknowledge(result.sequence, outcome, self.now_ns, elsewhere)

    def add(self, topic: str = "orders", queue_id: int = 0, size: int = 4) -> MessagePlace:
        row = (b"%0*d" % (size, self.added), b"")
        self.added += 1
        bound = size_bound(topic, row)
        return self.outbox.add(topic, queue_id, (0, 0, 1, 0), row, bound, self.now_ns)

    def send(self) -> None:
        self.now_ns += 1_000_000_000
        if self.moving:
            return
        if (one := self.outbox.next_batch(self.now_ns)) is not None:
            self._wire.put_nowait(sent_of(one))

    async def turn(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            await asyncio.sleep(0)
        if self.moving and not self.outbox.in_flight:
            await self.hang_up()

    async def hang_up(self) -> None:
        """The log may have read what was sent, and its answers are lost."""
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self.answers.aclose()
        self.store.settle()
        assert self.outbox.lost(self.now_ns) == []
        self.open()

    async def see_it_killed(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self.answers.aclose()
        self.store.kill()
        self.store.start()
        assert self.outbox.lost(self.now_ns) == []
        self.open()

    async def rest(self) -> None:
        self.store.log.gate.disk_full = False
        lead(self.store)
        for _ in range(1_000):
            self.send()
            await self.turn()
            self.store.settle()
        assert self.outbox.idle, "nothing more is answered"
        self._wire.put_nowait(None)
        await self._reading


def is_elsewhere(error: StrataError | None) -> bool:
    """Another broker may take it."""
    return isinstance(error, NotWritableError) and error.reason != "permission"


def lead(store: Store) -> None:
    """Grant the log's lead, or grant it again."""
    store.clock.advance_ms(1)
    store.log.gate.lease.grant("", store.clock.monotonic_ns())


def end_lead(store: Store) -> None:
    store.log.gate.lease.end_lead("", store.clock.monotonic_ns(), "another member takes over")


def sent_of(one: Batch) -> SentBatch:
    lengths, pieces = one.encode(SHAPE)
    frames = b"".join(pieces)
    runs = [FrameRun(run.topic, run.queue_id, run.count) for run in one.runs.values()]
    counts = np.frombuffer(lengths, ">u4").astype(np.uint32)
    known = one.sent_from
    place = KnownPlace(known.generation, known.offset) if one.unanswered and known else None
    return SentBatch(
        one.sequence, len(frames), runs, counts, frames, place, resumes=one.resumes, partial=True
    )


@pytest.mark.parametrize("seed", range(40))
async def test_what_is_refused_for_now_is_stored_before_what_was_sent_behind_it(seed):
    store = Store(seed=seed)
    store.start()
    producer = Producer(store, seed)
    events = ("add", "add", "send", "send", "turn", "settle", "full", "lead", "")
    for _ in range(200):
        match producer.chance.choice(events):
            case "add":
                producer.add()
            case "send":
                producer.send()
            case "turn":
                await producer.turn()
            case "settle":
                store.settle()
            case "full":
                store.log.gate.disk_full ^= True
            case "lead":
                (lead if store.log.gate.lease.ended else end_lead)(store)
            case "" if producer.chance.random() < 0.1:
                await producer.hang_up()
    await producer.rest()
    assert [int(frame.body) for frame in store.frames()] == list(range(producer.added))


@pytest.mark.parametrize("seed", range(40))
async def test_what_the_log_does_not_take_takes_nothing_of_its_batch_with_it(seed):
    """Whatever befalls the batch: a full disk, a lost answer, an election, a segment's end."""
    store = Store(4096, seed=seed, max_message_bytes=100)
    log = store.start()
    log.topics.put(TopicConfig("closed", permission=4))
    log.topics.put(TopicConfig("ordered", message_type=MessageType.FIFO))
    producer = Producer(store, seed)
    taken = [("orders", 0), ("orders", 3), ("invoices", 0)]
    refused = [("orders", 99), ("closed", 0), ("ordered", 1), ("é", 0), ("orders", 0, 101)]
    added = []
    for _ in range(200):
        match producer.chance.choice(("add", "add", "add", "send", "turn", "settle", "full", "")):
            case "add":
                queue = producer.chance.choice([*taken, *refused])
                added.append((queue, producer.add(*queue)))
            case "send":
                producer.send()
            case "turn":
                await producer.turn()
            case "settle":
                store.settle()
            case "full" if producer.chance.random() < 0.3:
                store.log.gate.disk_full ^= True
            case "" if producer.chance.random() < 0.1:
                await producer.hang_up()
            case "" if producer.chance.random() < 0.3:
                (lead if store.log.gate.lease.ended else end_lead)(store)
    await producer.rest()
    frames = {offset: frame for offset, _, frame in store.members() if isinstance(frame, Frame)}
    for wanted in taken:
        found = [int(f.body) for f in frames.values() if (f.topic, f.queue_id) == wanted]
        assert found == [number for number, (queue, _) in enumerate(added) if queue == wanted]
    assert {(frame.topic, frame.queue_id) for frame in frames.values()} <= {*taken}
    for number, (queue, (one, run, index)) in enumerate(added):
        result = one.result_of(run, index)
        if queue in taken:
            frame = frames[result.check().physical_offset]
            assert (int(frame.body), frame.queue_offset) == (number, result.queue_offset)
        else:
            assert isinstance(
                result.error, InvalidRequestError | NotWritableError | UnavailableError
            )


@pytest.mark.parametrize("seed", range(40))
async def test_topics_that_change_between_attempts_change_no_order(seed):
    """They are opened, closed, and given a type, and the log is killed."""
    store = Store(4096, seed=seed)
    log = store.start()
    producer = Producer(store, seed)
    chance, topics, added = producer.chance, ("a", "b", "c"), []

    def change(topic: str) -> None:
        permission = chance.choice((6, 6, 4))
        wanted = chance.choice((MessageType.UNSPECIFIED, MessageType.UNSPECIFIED, MessageType.FIFO))
        store.log.topics.put(TopicConfig(topic, permission=permission, message_type=wanted))

    for topic in topics:
        log.topics.put(TopicConfig(topic))
    for _ in range(300):
        match chance.choice(("add", "add", "add", "send", "send", "turn", "settle", "topic", "")):
            case "add":
                queue = chance.choice(topics), chance.choice((0, 0, 1))
                added.append((queue, producer.add(*queue)))
            case "send":
                producer.send()
            case "turn":
                await producer.turn()
            case "settle":
                store.settle()
            case "topic":
                change(chance.choice(topics))
            case "" if chance.random() < 0.4:
                await producer.hang_up()
            case "" if chance.random() < 0.1:
                await producer.see_it_killed()
                for topic in topics:
                    change(topic)
    await producer.rest()
    frames = {offset: frame for offset, _, frame in store.members() if isinstance(frame, Frame)}
    for topic in topics:
        for queue_id in (0, 1):
            found = [
                int(frame.body)
                for frame in frames.values()
                if (frame.topic, frame.queue_id) == (topic, queue_id)
            ]
            assert found == sorted(set(found))
    stored = {int(frame.body) for frame in frames.values()}
    for number, (_, (one, run, index)) in enumerate(added):
        result = one.result_of(run, index)
        if result.error is None:
            assert int(frames[result.physical_offset].body) == number
        else:
            assert number not in stored or isinstance(result.error, UnavailableError)


async def test_what_was_refused_is_refused_again_once_later_messages_are_stored():
    """The topic was closed when the first batch came, and open when the second did; the answers
    were lost."""
    store = Store()
    log = store.start()
    producer = Producer(store)
    log.topics.put(TopicConfig("closed", permission=4))
    wanted = [("orders", 0), ("closed", 0), ("orders", 1), ("closed", 0), ("orders", 0)]
    places = [producer.add(*queue) for queue in wanted]
    producer.send()
    while not log.appender.waiting:
        await asyncio.sleep(0)
    log.topics.put(TopicConfig("closed"))
    producer.send()
    for _ in range(9):
        await asyncio.sleep(0)
    await producer.hang_up()
    await producer.rest()
    assert [int(frame.body) for frame in store.frames()] == [0, 2, 3, 4]
    results = [one.result_of(run, index) for one, run, index in places]
    assert [result.error is None for result in results] == [True, False, True, True, True]
    assert isinstance(results[1].error, UnavailableError)


async def test_what_is_refused_for_good_holds_up_nothing():
    """For example, the log cannot know any more whether it has it."""
    store = Store()
    store.start()
    producer = Producer(store)
    for _ in range(9):
        producer.add()
    first = producer.outbox.next_batch(0)
    unknown = KnownPlace(generation=12345, offset=1)
    producer._wire.put_nowait(sent_of(first)._replace(sent_from=unknown))
    await producer.rest()
    assert first.outcome.beyond_window
    assert [int(frame.body) for frame in store.frames()] == list(range(3, 9))


async def test_what_is_given_up_holds_up_nothing():
    store = Store()
    store.start()
    producer = Producer(store, delivery_ns=0)
    store.log.gate.disk_full = True
    for _ in range(9):
        producer.add()
    while not producer.outbox.idle:
        producer.send()
        await producer.turn()
    for _ in range(3):
        producer.add()
    await producer.rest()
    assert [int(frame.body) for frame in store.frames()] == [9, 10, 11]


def test_nothing_is_sent_behind_a_refused_batch_until_all_that_was_sent_is_answered():
    """Sent at once, 0 and 3 could be stored before 1 and 2, whose refusals are on their way."""
    outbox = outbox_of(batch_messages=1)
    for _ in range(4):
        outbox.add("orders", 0, (0, 0, 1, 0), (b"body", b""), 200, 0)
    sent = [outbox.next_batch(0) for _ in range(3)]
    busy = BatchOutcome(SendStatus.OS_PAGECACHE_BUSY, error=BusyError("busy", retry_after_ms=0))
    for one in sent:
        outbox.acknowledge(one.sequence, busy, 0)
        assert one is sent[-1] or outbox.next_batch(0) is None
    again = [outbox.next_batch(0) for _ in range(4)]
    numbers = [one.sequence for one in sent]
    assert [one.sequence for one in again] == [*numbers, numbers[-1] + 1]
    assert [one.resumes for one in again] == [True, False, False, False]


def test_what_waits_behind_a_batch_that_is_refused_is_refused_when_its_turn_comes():
    """For example, no segment could be allocated for the one before."""
    store = Store()
    store.start()
    refused: list[BusyError] = []

    def behind() -> BusyError | None:
        return refused[0] if refused else None

    first, second = (batch([body]) for body in (b"first", b"second"))
    answers = []
    for one in (first, second):
        store.log.puts.batch(_behind(one, behind), answers.append)
    refused.append(BusyError("refused before"))
    store.settle()
    assert [one.status for one in answers] == [SendStatus.SERVICE_NOT_AVAILABLE] * 2
    assert store.frames() == []


def _behind(one, behind):
    return type(one)(one.runs, one.lengths, one.frames, behind=behind)
