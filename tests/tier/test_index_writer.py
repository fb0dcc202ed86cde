"""The key index of our own tiers: what is committed is found by its keys, whatever crashes."""

from dataclasses import replace
from random import Random

import pytest

from stratamq.errors import StrataError
from stratamq.files.simulated_faults import SimulatedCrash
from stratamq.formats.tier_index import (
    ITEM_BYTES,
    SLOT_BYTES,
    decode_tier_index_header,
    uploaded_items,
)
from stratamq.formats.tier_index_manifest import decode_index_manifest, encode_index_manifest
from stratamq.formats.tier_manifest import Epoch
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import Create, Load, Procedure, Swap, ask
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.simulated import Odds, SimulatedBackend, When
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.key_index import (
    ALL_TIMES,
    KeyIndex,
    KeyIndexAnswer,
    KeyQuestion,
    index_place,
    load_index,
    query,
)
from stratamq.tier.reading.manifests import open_queue
from stratamq.tier.writing.claim import FencedError, claim
from stratamq.tier.writing.index_writer import IndexWriter
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.tier.queue_model import PLACE, TIME, QueueModel

LIMITS = TierLimits(
    record_segment_bytes=2_000, unit_segment_bytes=140, roll_min_bytes=600, join_bytes=500
)
MODEL = QueueModel(500, tuple((offset * 37) % 300 for offset in range(60)))
BOTH = pytest.mark.parametrize("positions", [True, False], ids=["positions", "parts"])
NAMES = (PLACE.cluster, PLACE.broker)


class Broker:
    """What a service does: commits, and keys behind them."""

    def __init__(self, storage: Storage, epoch: Epoch) -> None:
        self.storage = storage
        self.queue = TierQueueWriter(PLACE, epoch, storage.positions, LIMITS)
        self.index = IndexWriter(*NAMES, epoch, storage.positions, most_items=40)

    def start(self) -> "Broker":
        run(self.index.open(), self.storage)
        run(self.index.catch_up(PLACE), self.storage)
        return self

    def commit(self, start: int, end: int) -> None:
        batch = MODEL.batch(start, end)
        manifest = run(self.queue.commit(batch, TIME), self.storage)
        if not self.index.add(batch, manifest):
            run(self.index.catch_up(PLACE), self.storage)

    def flush(self) -> None:
        run(self.index.flush(), self.storage)


def broker(storage: Storage, generation: int = 1) -> Broker:
    return Broker(storage, run(claim(*NAMES, generation), storage)).start()


def found(
    storage: Storage, index: KeyIndex, key: str, span: tuple[int, int] = ALL_TIMES
) -> list[int]:
    answer = ask_for(storage, index, KeyQuestion(PLACE.topic, key, 32, span))
    assert answer.damaged == ()
    return offsets_of(answer)


def ask_for(storage: Storage, index: KeyIndex, question: KeyQuestion) -> KeyIndexAnswer:
    return run(query(index, queue_with, question), storage)


def queue_with(queue_id: int) -> Procedure[TierQueue | None]:
    opened = yield from open_queue(replace(PLACE, queue_id=queue_id))
    return opened.queue if opened is not None else None


def offsets_of(answer: KeyIndexAnswer) -> list[int]:
    return [hit.frame.queue_offset for hit in answer.hits]


def stored(storage: Storage) -> KeyIndex:
    manifest = run(load_index(*NAMES), storage)
    assert manifest is not None
    return KeyIndex(manifest)


def check(storage: Storage, index: KeyIndex, start: int, end: int, step: int = 1) -> None:
    for offset in range(start, end, step):
        assert found(storage, index, f"k{offset}") == [offset]
        assert found(storage, index, f"u{offset}") == [offset]
    assert found(storage, index, "k499") == []


@BOTH
@pytest.mark.parametrize("step", [1, 7, 60])
def test_every_message_is_found_by_each_of_its_keys(positions, step):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    for start in range(500, 560, step):
        ours.commit(start, min(560, start + step))
        if start % 3 == 0:
            ours.flush()
    check(storage, ours.index.reader(), 500, 560)
    ours.flush()
    check(storage, stored(storage), 500, 560)


@BOTH
def test_what_is_not_uploaded_yet_is_found_by_its_writer_alone(positions):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    ours.commit(500, 507)
    ours.flush()
    ours.commit(507, 514)
    check(storage, ours.index.reader(), 500, 514)
    check(storage, stored(storage), 500, 507)
    assert found(storage, stored(storage), "k510") == []


@BOTH
def test_a_file_has_rocketmqs_form_and_is_as_small_as_its_keys_let_it(positions):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    ours.commit(500, 540)
    ours.flush()
    (file,) = stored(storage).manifest.files
    raw = storage.objects[file.name]
    header = decode_tier_index_header(raw)
    assert header.items == len(uploaded_items(raw)) == file.items == 80
    assert len(raw) == file.size == 28 + SLOT_BYTES * file.slots + ITEM_BYTES * file.items
    assert (header.begin_ms, header.end_ms) == (TIME + 5_000, TIME + 5_390)
    assert file.slots == 80


@BOTH
def test_keys_are_found_by_the_time_of_their_message_to_the_millisecond(positions):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    for start in range(500, 560, 20):
        ours.commit(start, start + 20)
        ours.flush()
    index = stored(storage)
    time = TIME + 5_370
    assert found(storage, index, "k537", (time, time)) == [537]
    assert found(storage, index, "k537", (time - 5_000, time - 1)) == []
    assert found(storage, index, "k537", (time + 1, time + 5_000)) == []
    assert len(index.between((time, time))) == 1


@BOTH
def test_an_index_that_is_lost_is_made_again_from_the_queues(positions):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    for start in range(500, 560, 10):
        ours.commit(start, start + 10)
        ours.flush()
    for path in [path for path in storage.objects if "rmq_sys_INDEX" in path]:
        del storage.objects[path]
    again = broker(storage, 2)
    again.flush()
    check(storage, stored(storage), 500, 560)
    assert stored(storage).manifest.covered == {(PLACE.topic, PLACE.queue_id): 560}


@BOTH
def test_a_writer_of_before_changes_nothing_more(positions):
    storage = MemoryStorage(positions)
    old = broker(storage)
    old.commit(500, 510)
    new = broker(storage, 2)
    with pytest.raises(FencedError):
        old.flush()
    new.flush()
    check(storage, stored(storage), 500, 510)


@BOTH
def test_messages_that_are_cut_off_are_found_no_more_and_those_in_their_place_are(positions):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    ours.commit(500, 530)
    ours.flush()
    key = PLACE.topic, PLACE.queue_id
    run(ours.index.limit({key: 520}), storage)
    run(ours.queue.take_over(520, TIME), storage)
    assert found_hits(storage, "k525") == []
    ours = broker(storage, 2)
    ours.commit(520, 560)
    ours.flush()
    for offset in range(500, 560):
        assert found_hits(storage, f"k{offset}") == [offset]


@BOTH
def test_the_writer_that_cut_a_queue_indexes_what_comes_instead(positions):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    ours.commit(500, 530)
    ours.flush()
    run(ours.index.limit({(PLACE.topic, PLACE.queue_id): 520}), storage)
    run(ours.queue.take_over(520, TIME), storage)
    moved = QueueModel(500, tuple((offset * 37) % 300 + 1 for offset in range(60)))
    batch = moved.batch(520, 560)
    assert ours.index.add(batch, run(ours.queue.commit(batch, TIME), storage))
    ours.flush()
    for offset in range(500, 560):
        assert found_hits(storage, f"k{offset}") == [offset]


@BOTH
def test_without_the_limit_messages_in_place_of_others_are_not_found(positions):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    ours.commit(500, 530)
    ours.flush()
    run(ours.queue.take_over(520, TIME), storage)
    moved = QueueModel(500, tuple((offset * 37) % 300 + 1 for offset in range(60)))
    writer = TierQueueWriter(PLACE, run(claim(*NAMES, 2), storage), positions, LIMITS)
    run(writer.commit(moved.batch(520, 528), TIME), storage)
    broker(storage, 2).flush()
    assert any(found_hits(storage, f"k{offset}") == [] for offset in range(520, 528))


def found_hits(storage: Storage, key: str) -> list[int]:
    """Items may point into other records after a cut: those are left out, and reported."""
    return offsets_of(ask_for(storage, stored(storage), KeyQuestion(PLACE.topic, key, 32)))


@BOTH
def test_files_of_old_messages_expire_and_their_names_are_not_used_again(positions):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    for start in range(500, 530, 10):
        ours.commit(start, start + 10)
        ours.flush()
    before = stored(storage).manifest.files
    assert run(ours.index.expire(TIME + 5_200, now_ms=10), storage) == 2
    assert run(ours.index.expire(TIME + 10**6, now_ms=10), storage) == 1
    assert run(ours.index.collect(11), storage) == 3
    assert not {file.name for file in before} & storage.objects.keys()
    ours.commit(530, 540)
    ours.flush()
    (file,) = stored(storage).manifest.files
    assert file.base == before[-1].end
    check(storage, stored(storage), 530, 540)


@BOTH
def test_after_a_crash_at_any_call_everything_committed_is_found(positions):
    for call in range(1, 40):
        for when in (list(When)[call % 3], list(When)[(call + 1) % 3]):
            backend = SimulatedBackend(call, positions=positions)
            ours = broker(backend.storage())
            backend.crash_at(backend.calls + call, when)
            with pytest.raises(SimulatedCrash):
                for start in range(500, 560, 5):
                    ours.commit(start, start + 5)
                    if start % 2:
                        ours.flush()
            again = broker(backend.storage(), 2)
            opened = run(open_queue(PLACE), backend.memory)
            end = opened.queue.end if opened is not None else 500
            check_ends(backend.memory, again, end)


def check_ends(storage: Storage, ours: Broker, end: int) -> None:
    if end < 560:
        ours.commit(end, 560)
    ours.flush()
    check(storage, stored(storage), 500, 560, step=3)


@BOTH
def test_errors_late_swaps_and_lost_answers_lose_no_key(positions):
    for seed in range(25):
        random = Random(seed)
        backend = SimulatedBackend(
            seed, positions=positions, odds=Odds(fail=0.05, lost=0.05, late=0.05, partial=0.05)
        )
        ours, end = None, 500
        for _ in range(200):
            try:
                if ours is None:
                    storage = backend.storage()
                    ours = Broker(storage, run(claim(*NAMES, 1), storage)).start()
                if end < 560:
                    ours.commit(end, min(560, end + 7))
                    end = min(560, end + 7)
                if random.random() < 0.4:
                    ours.flush()
            except StrataError:
                if random.random() < 0.3:
                    ours = None
        backend.settle()
        last = broker(backend.storage(), 2)
        check_ends(backend.memory, last, end)


def test_a_manifest_comes_back_from_its_bytes():
    storage = MemoryStorage(positions=False)
    ours = broker(storage)
    ours.commit(500, 510)
    ours.flush()
    run(ours.index.expire(TIME + 10**6, now_ms=10), storage)
    manifest = stored(storage).manifest
    assert manifest.dropped
    assert decode_index_manifest(encode_index_manifest(manifest)) == manifest


def test_a_flush_costs_two_requests():
    backend = SimulatedBackend(1, positions=False)
    ours = broker(backend.storage())
    ours.commit(500, 510)
    before = backend.calls
    ours.flush()
    assert [type(call) for call in backend.trace[before:]] == [Create, Swap]


@BOTH
def test_an_index_whose_manifest_is_damaged_is_made_again_from_the_queues(positions):
    storage = MemoryStorage(positions)
    ours = broker(storage)
    ours.commit(500, 560)
    ours.flush()
    path = index_place(*NAMES).manifest
    _, version = run(ask(Load(path)), storage)
    run(ask(Swap(path, b"{", version)), storage)
    again = broker(storage, 2)
    again.flush()
    check(storage, stored(storage), 500, 560, step=3)


def test_a_queue_is_caught_up_with_in_pieces():
    storage = MemoryStorage(positions=False)
    ours = broker(storage)
    for start in range(500, 560, 10):
        ours.commit(start, start + 10)
    again = Broker(storage, run(claim(*NAMES, 2), storage))
    run(again.index.open(), storage)
    pieces = []
    while count := run(again.index.catch_up(PLACE, most_bytes=1), storage):
        pieces.append(count)
    assert sum(pieces) == 60
    assert len(pieces) > 3
    check(storage, again.index.reader(), 500, 560, step=3)


def test_what_is_in_memory_is_in_few_pieces_however_small_the_commits_are():
    storage = MemoryStorage(positions=False)
    ours = broker(storage)
    for offset in range(500, 519):
        ours.commit(offset, offset + 1)
        assert len(ours.index.reader().pending) <= 6
    assert ours.index.items == 38


@BOTH
def test_files_that_a_crash_left_are_deleted_and_named_ones_are_not(positions):
    backend = SimulatedBackend(1, positions=positions, now_ms=lambda: 5_000)
    ours = broker(backend.storage())
    ours.commit(500, 520)
    ours.flush()
    ours.commit(520, 530)
    backend.crash_at(backend.calls + (3 if positions else 2), When.BEFORE)
    with pytest.raises(SimulatedCrash):
        ours.flush()
    again = broker(backend.storage(), 2)
    again.flush()
    named = {file.name for file in stored(backend.memory).manifest.files}
    left = {path for path in backend.memory.objects if "/INDEX/" in path}
    assert left > named
    run(again.index.sweep(before_ms=0), backend.memory)
    assert {path for path in backend.memory.objects if "/INDEX/" in path} == left
    run(again.index.sweep(before_ms=1 << 60), backend.memory)
    assert {path for path in backend.memory.objects if "/INDEX/" in path} == named
    check(backend.memory, stored(backend.memory), 500, 530)
