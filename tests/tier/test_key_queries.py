"""Which messages of a key a query gives: the newest or the oldest, each once, in their order."""

from dataclasses import dataclass
from random import Random

import numpy as np
import pytest

from stratamq.formats import frame as frames
from stratamq.formats.properties import encode_properties
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import Procedure, Read
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.simulated import SimulatedBackend
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.key_index import (
    FILES_AT_ONCE,
    KeyIndex,
    KeyIndexAnswer,
    KeyQuestion,
    load_index,
    query,
)
from stratamq.tier.reading.manifests import open_queue
from stratamq.tier.writing.batch import TierBatch
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.index_merging import RUN, run_to_merge
from stratamq.tier.writing.index_writer import IndexWriter
from stratamq.tier.writing.queue_writer import TierQueueWriter

TIME = 1_700_000_000_000
TOPIC, KEY = "orders", "order-7"
NAMES = ("DefaultCluster", "broker-a")
LIMITS = TierLimits(record_segment_bytes=4_000, unit_segment_bytes=400, roll_min_bytes=600)
BOTH = pytest.mark.parametrize("positions", [True, False], ids=["positions", "parts"])


@dataclass(frozen=True)
class Stored:
    queue_id: int
    offset: int
    time_ms: int
    keys: str
    body: bytes = b"x"

    def record(self) -> bytes:
        properties = {"KEYS": self.keys, "UNIQ_KEY": f"u{self.queue_id}-{self.offset}"}
        return frames.encode(
            topic=TOPIC.encode(),
            body=self.body,
            born_host=bytes(8),
            store_host=bytes(8),
            properties=encode_properties(properties),
            queue_id=self.queue_id,
            queue_offset=self.offset,
            physical_offset=0,
            store_timestamp_ms=self.time_ms,
        )


class Tier:
    """Messages of several queues, committed and indexed in batches."""

    def __init__(self, storage: Storage, most_items: int = 1_000_000) -> None:
        self.storage = storage
        self.messages: list[Stored] = []
        self._epoch = run(claim(*NAMES, 1), storage)
        self.index = IndexWriter(*NAMES, self._epoch, storage.positions, most_items=most_items)
        self._writers: dict[int, TierQueueWriter] = {}
        run(self.index.open(), storage)

    def commit(self, messages: list[Stored]) -> None:
        """Of one queue, in their order."""
        queue_id = messages[0].queue_id
        writer = self._writers.get(queue_id)
        if writer is None:
            place = QueuePlace(*NAMES, TOPIC, queue_id)
            writer = TierQueueWriter(place, self._epoch, self.storage.positions, LIMITS)
            self._writers[queue_id] = writer
        records = [one.record() for one in messages]
        batch = TierBatch(
            messages[0].offset,
            b"".join(records),
            np.array([len(raw) for raw in records], np.int64),
            np.zeros(len(records), np.int64),
            np.array([one.time_ms for one in messages], np.int64),
        )
        assert self.index.add(batch, run(writer.commit(batch, TIME), self.storage))
        self.messages += messages

    def flush(self) -> None:
        run(self.index.flush(), self.storage)

    def stored_index(self) -> KeyIndex:
        manifest = run(load_index(*NAMES), self.storage)
        assert manifest is not None
        return KeyIndex(manifest)

    def ask(self, question: KeyQuestion, index: KeyIndex | None = None) -> KeyIndexAnswer:
        return run(query(index or self.index.reader(), queue_with, question), self.storage)

    def wanted(self, question: KeyQuestion) -> list[tuple[int, int, int]]:
        """By looking at every message: (time, queue, offset)."""
        found = sorted(
            (one.time_ms, one.queue_id, one.offset)
            for one in self.messages
            if question.key in one.keys.split()
            and question.span[0] <= one.time_ms <= question.span[1]
        )
        if not question.oldest_first:
            found.reverse()
        return found


@BOTH
def test_what_was_purged_within_a_segment_is_not_found(positions):
    storage = MemoryStorage(positions)
    tier = Tier(storage)
    tier.commit([Stored(0, offset, TIME + offset, KEY) for offset in range(10)])
    tier.flush()
    place = QueuePlace(*NAMES, TOPIC, 0)
    writer = TierQueueWriter(place, run(claim(*NAMES, 1), storage), positions, LIMITS)
    assert run(writer.purge(7, TIME), storage) == 0
    answer = tier.ask(KeyQuestion(TOPIC, KEY, 100), tier.stored_index())
    assert [hit.frame.queue_offset for hit in answer.hits] == [9, 8, 7]


def queue_with(queue_id: int) -> Procedure[TierQueue | None]:
    opened = yield from open_queue(QueuePlace(*NAMES, TOPIC, queue_id))
    return opened.queue if opened is not None else None


def filled(storage: Storage, seed: int, count: int = 400) -> Tier:
    """Queues whose uploads come one after the other, so that times of files overlap."""
    random = Random(seed)
    tier, ends = Tier(storage), [0, 0, 0]
    clock = TIME
    while len(tier.messages) < count:
        queue_id = random.randrange(3)
        batch = []
        for _ in range(random.randrange(1, 12)):
            clock += random.choice([0, 1, 250, 1_000, 4_000])
            late = random.choice([0, 0, 0, 700])
            keys = random.choice([KEY, f"a {KEY}", "other", "order-8 b"])
            batch.append(Stored(queue_id, ends[queue_id], clock - late, keys))
            ends[queue_id] += 1
        tier.commit(batch)
        if random.random() < 0.3:
            tier.flush()
    return tier


def order_of(answer: KeyIndexAnswer) -> list[tuple[int, int, int]]:
    return [hit.order for hit in answer.hits]


@BOTH
@pytest.mark.parametrize("oldest_first", [False, True], ids=["newest", "oldest"])
@pytest.mark.parametrize("seed", range(4))
def test_a_limit_gives_exactly_the_newest_or_the_oldest_messages_and_reports_more(
    positions, oldest_first, seed
):
    tier = filled(MemoryStorage(positions), seed)
    for limit in (1, 5, 32, 33, 1_000):
        question = KeyQuestion(TOPIC, KEY, limit, oldest_first=oldest_first)
        wanted = tier.wanted(question)
        answer = tier.ask(question)
        assert order_of(answer) == wanted[:limit]
        assert answer.truncated == (len(wanted) > limit)


@BOTH
@pytest.mark.parametrize("oldest_first", [False, True], ids=["newest", "oldest"])
def test_times_choose_messages_to_the_millisecond(positions, oldest_first):
    tier = filled(MemoryStorage(positions), 5)
    times = sorted(one.time_ms for one in tier.messages)
    for low, high in ((10, 300), (200, 200), (0, 5), (390, 399)):
        span = times[low], times[high]
        question = KeyQuestion(TOPIC, KEY, 50, span, oldest_first)
        assert order_of(tier.ask(question)) == tier.wanted(question)[:50]


def test_a_merged_file_gives_the_same_answers_and_few_files_are_left():
    storage = MemoryStorage(positions=False)
    tier = filled(storage, 9, count=900)
    for offset in range(3 * RUN):
        tier.commit([Stored(7, offset, TIME + offset * 333, f"{KEY} m{offset}")])
        tier.flush()
    before = tier.stored_index()
    merged = 0
    while count := run(tier.index.merge(TIME), storage):
        merged += count
    after = tier.stored_index()
    assert merged >= 3 * RUN
    assert len(after.manifest.files) < len(before.manifest.files) - 2 * RUN
    assert after.manifest.covered == before.manifest.covered
    for oldest_first in (False, True):
        for span in ((TIME, TIME + 500_000), (TIME + 4_000, TIME + 9_000)):
            question = KeyQuestion(TOPIC, KEY, 40, span, oldest_first)
            assert order_of(tier.ask(question, after)) == tier.wanted(question)[:40]
    assert order_of(tier.ask(KeyQuestion(TOPIC, "m5", 9))) == [(TIME + 5 * 333, 7, 5)]


def test_however_often_keys_are_flushed_the_number_of_files_stays_small():
    tier = Tier(MemoryStorage(positions=False), most_items=256)
    largest = 0
    for offset in range(600):
        tier.commit([Stored(0, offset, TIME + offset, KEY)])
        tier.flush()
        while run(tier.index.merge(TIME), tier.storage):
            pass
        files = tier.stored_index().manifest.files
        assert not run_to_merge(files, 256)
        full = sum(1 for file in files if file.items >= 128)
        largest = max(largest, len(files) - full)
    assert largest <= 3 * RUN
    assert sum(file.items for file in tier.stored_index().manifest.files) == 1_200


def test_a_file_that_is_merged_is_deleted_after_its_grace_time_alone():
    tier = Tier(MemoryStorage(positions=False))
    for offset in range(RUN):
        tier.commit([Stored(0, offset, TIME + offset, KEY)])
        tier.flush()
    old = tier.stored_index()
    assert run(tier.index.merge(now_ms=50), tier.storage) == RUN
    question = KeyQuestion(TOPIC, KEY, 99)
    assert run(tier.index.collect(50), tier.storage) == 0
    assert order_of(tier.ask(question, old)) == tier.wanted(question)
    assert run(tier.index.collect(51), tier.storage) == RUN
    assert order_of(tier.ask(question)) == tier.wanted(question)


def test_the_newest_message_of_a_key_costs_three_rounds_of_requests():
    backend = SimulatedBackend(1, positions=False)
    tier = Tier(backend.storage())
    for offset in range(3 * FILES_AT_ONCE):
        tier.commit([Stored(0, offset, TIME + offset * 60_000, KEY)])
        tier.flush()
    before = backend.calls
    answer = tier.ask(KeyQuestion(TOPIC, KEY, 1), tier.stored_index())
    assert order_of(answer) == [(TIME + (3 * FILES_AT_ONCE - 1) * 60_000, 0, 23)]
    reads = [call for call in backend.trace[before:] if isinstance(call, Read)]
    assert len(reads) <= 3 * FILES_AT_ONCE


def test_hidden_messages_and_those_with_the_key_as_a_word_alone_are_left_out():
    tier = Tier(MemoryStorage(positions=False))
    tier.commit([Stored(0, offset, TIME + offset, f"u0-{offset} {KEY}") for offset in range(9)])
    hidden = KeyQuestion(TOPIC, KEY, 99, minimums={0: 6}, oldest_first=True)
    assert [offset for _, _, offset in order_of(tier.ask(hidden))] == [6, 7, 8]
    assert len(tier.ask(KeyQuestion(TOPIC, KEY, 9, unique_only=True)).hits) == 0
    assert len(tier.ask(KeyQuestion(TOPIC, "u0-3", 9, unique_only=True)).hits) == 1
    assert tier.ask(KeyQuestion("elsewhere", KEY, 9)).hits == ()


def test_an_answer_ends_at_its_bound_of_bytes_with_one_message_at_least():
    tier = Tier(MemoryStorage(positions=False))
    body = bytes(1_500_000)
    tier.commit([Stored(0, offset, TIME + offset, KEY, body) for offset in range(3)])
    answer = tier.ask(KeyQuestion(TOPIC, KEY, 99))
    assert [offset for _, _, offset in order_of(answer)] == [2]
    assert answer.truncated
