"""A tier that was put back to an older copy, whole or in one object: its writer notices, what is
missing is lost and no gap, and every reader is told.
"""

import random

import pytest
from stratamq_tier.config import TierConfig
from stratamq_tier.followed_log import FollowedLog
from stratamq_tier.gaps import Gaps
from stratamq_tier.queue_table import TierQueueTable
from stratamq_tier.written_tier import is_older, recall, remember, require_new

from stratamq.errors import CorruptRecordError, LostMessagesError, NotWritableError
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.tier_manifest import Hole, Manifest, decode_manifest
from stratamq.formats.tier_progress import TierProgress, TierSelection
from stratamq.table.selection import Selection
from stratamq.table.tier_parts import wanted_queues
from stratamq.tier.containers.place import TierLimits, progress_path, queues_path
from stratamq.tier.driver.calls import Folders, List
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.contents import totals
from stratamq.tier.reading.key_index import index_place
from stratamq.tier.reading.manifests import queue_of
from stratamq.tier.reading.pull import pull
from stratamq.tier.reading.queue_list import load_queue_list, missing_queues
from stratamq.tier.reading.times import offset_by_time
from stratamq.tier.reading.verify import verify_queue
from stratamq.tier.restoring.restoring import Restore, Restored
from stratamq.tier.writing import queue_list
from stratamq.tier.writing.claim import FencedError, PutBackError, claim
from stratamq.tier.writing.collecting import garbage_of
from stratamq.tier.writing.index_writer import IndexWriter
from stratamq.tier.writing.orphans import listed as objects_of
from stratamq.tier.writing.progress import ProgressObject, load_progress
from stratamq.tier.writing.queue_list import QueueList
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.tier.queue_model import PLACE, TIME
from tests.tier.test_queue_writer import BOTH, MODEL, SMALL, opened, writer

NAMES = PLACE.cluster, PLACE.broker
KEY = PLACE.topic, PLACE.queue_id
MIDDLE, FIRST_LEFT = 520, 540
"""The older copy ends at the one, and the log has messages from the other on."""


def lost(place, manifest: Manifest | None, end: int, now_ms: int) -> tuple[Hole, ...]:
    start = manifest.end_offset if manifest is not None else MODEL.first
    return (Hole(start, end, now_ms, lost=True),) if start < end else ()


def lossy(storage: Storage, limits: TierLimits = SMALL) -> TierQueueWriter:
    epoch = run(claim(*NAMES, 1), storage)
    return TierQueueWriter(PLACE, epoch, storage.positions, limits, listed=True, gaps=lost)


def with_loss(positions: bool) -> MemoryStorage:
    storage = MemoryStorage(positions)
    ours = lossy(storage)
    run(ours.commit(MODEL.batch(500, MIDDLE), TIME), storage)
    run(ours.commit(MODEL.batch(FIRST_LEFT, 560), TIME), storage)
    return storage


# --- its writer ---


@BOTH
def test_a_writer_ends_where_a_manifest_is_older_than_it_was(positions):
    storage = MemoryStorage(positions)
    ours = writer(storage)
    run(ours.commit(MODEL.batch(500, 510), TIME), storage)
    copy = dict(storage.objects)
    run(ours.commit(MODEL.batch(510, MIDDLE), TIME), storage)
    storage.objects = copy
    with pytest.raises(PutBackError, match="was put back to an older copy"):
        run(ours.commit(MODEL.batch(MIDDLE, 530), TIME), storage)
    del storage.objects[PLACE.manifest]
    with pytest.raises(PutBackError):
        run(ours.open(), storage)


def test_a_progress_that_is_older_than_it_was_ends_its_writer():
    storage = MemoryStorage()
    record = ProgressObject(*NAMES, run(claim(*NAMES, 1), storage))
    run(record.load(), storage)
    run(record.store(1, 10, 20), storage)
    copy = storage.objects[progress_path(*NAMES)]
    run(record.store(1, 20, 30), storage)
    storage.objects[progress_path(*NAMES)] = copy
    with pytest.raises(PutBackError):
        run(record.store(1, 30, 40), storage)
    del storage.objects[progress_path(*NAMES)]
    with pytest.raises(PutBackError):
        run(record.load(), storage)


def test_a_key_index_that_is_older_than_it_was_ends_its_writer():
    storage = MemoryStorage()
    index = IndexWriter(*NAMES, run(claim(*NAMES, 1), storage), True, 64, 40)
    run(index.open(), storage)
    path = index_place(*NAMES).manifest
    copy = storage.objects[path]
    run(index.open(), storage)
    storage.objects[path] = copy
    with pytest.raises(PutBackError):
        run(index.open(), storage)
    del storage.objects[path]
    with pytest.raises(PutBackError):
        run(index.open(), storage)


def test_an_epoch_that_was_given_is_not_given_again_by_an_older_claim():
    storage = MemoryStorage()
    first = run(claim(*NAMES, 7), storage)
    copy = dict(storage.objects)
    second = run(claim(*NAMES, 7), storage)
    storage.objects = copy
    assert run(claim(*NAMES, 7, above=second), storage) > second > first


def test_what_is_missing_stays_known_until_it_is_recorded():
    storage = MemoryStorage()
    record = ProgressObject(*NAMES, run(claim(*NAMES, 1), storage))
    run(record.store(1, 10, 20, choice=TierSelection(("a",))), storage)
    run(record.hold(put_back=True), storage)
    record.continue_above(100)
    run(record.store(1, 20, 30, choice=TierSelection(("b",)), forced=True), storage)
    known = known_progress(storage)
    assert (known.put_back, known.forced, known.revision) == (True, True, 101)
    assert known.chosen == (TierSelection(("a",)), TierSelection(("b",)))
    run(record.store(1, 30, 30, recorded=True), storage)
    known = known_progress(storage)
    assert (known.put_back, known.forced, known.chosen) == (False, False, (TierSelection(("b",)),))


def known_progress(storage: Storage) -> TierProgress:
    found = run(load_progress(*NAMES), storage)
    assert found is not None
    return found[0]


def test_a_queue_of_an_earlier_term_that_was_listed_is_kept_and_one_that_came_late_leaves():
    for is_listed in (True, False):
        storage = MemoryStorage()
        run(writer(storage, generation=(1 << 51) + 1).commit(MODEL.batch(500, 510), TIME), storage)
        later = (2 << 51) + 1
        epoch = run(claim(*NAMES, later), storage)
        ours = TierQueueWriter(PLACE, epoch, True, SMALL, replaces=True, listed=is_listed)
        run(ours.purge(505, TIME), storage)
        run(ours.commit(MODEL.batch(510, MIDDLE), TIME), storage)
        found = opened(storage)
        assert found is not None
        assert found.manifest.minimum == (505 if is_listed else 510)


# --- what it records ---


@BOTH
def test_lost_messages_are_a_fault_and_whoever_reads_them_is_told(positions):
    storage = with_loss(positions)
    found = opened(storage)
    assert found is not None
    assert found.manifest.lost == (Hole(MIDDLE, FIRST_LEFT, TIME, lost=True),)
    assert decode_manifest(storage.objects[PLACE.manifest]) == found.manifest
    for offset in (MIDDLE, FIRST_LEFT - 1):
        with pytest.raises(LostMessagesError, match=f"from offset {FIRST_LEFT}") as error:
            run(pull(found.queue, offset, 32), storage)
        assert (error.value.first, error.value.end) == (offset, FIRST_LEFT)
    assert run(pull(found.queue, MIDDLE - 5, 32), storage).next == MIDDLE
    assert run(pull(found.queue, FIRST_LEFT, 5), storage).next == FIRST_LEFT + 5
    assert f"offsets {MIDDLE} to {FIRST_LEFT} are lost" in run(verify_queue(PLACE), storage).faults
    assert run(totals(*NAMES), storage).put_back == FIRST_LEFT - MIDDLE


@BOTH
def test_a_time_that_lost_messages_may_have_is_where_they_begin(positions):
    storage = with_loss(positions)
    found = opened(storage)
    assert found is not None
    times = [int(MODEL.batch(one, one + 1).times[0]) for one in (MIDDLE - 1, FIRST_LEFT)]
    for points in ((), found.points):
        answer = run(offset_by_time(found.queue, times[0] + 1, False, points), storage)
        assert answer == MIDDLE
        assert run(offset_by_time(found.queue, times[1] + 1, False, points), storage) > FIRST_LEFT


@BOTH
@pytest.mark.parametrize("limits", [SMALL, TierLimits()], ids=["small", "default"])
def test_a_queue_without_messages_behind_what_is_lost_ends_behind_it(positions, limits):
    storage = MemoryStorage(positions)
    ours = lossy(storage, limits)
    run(ours.commit(MODEL.batch(500, MIDDLE), TIME), storage)
    run(ours.account(FIRST_LEFT, TIME), storage)
    found = opened(storage)
    assert found is not None
    assert (found.manifest.minimum, found.manifest.end_offset) == (500, FIRST_LEFT)
    before = dict(storage.objects)
    run(ours.account(FIRST_LEFT, TIME), storage)
    assert storage.objects == before
    run(lossy(storage, limits).commit(MODEL.batch(FIRST_LEFT, 560), TIME), storage)
    found = opened(storage)
    assert found is not None
    assert found.manifest.lost == (Hole(MIDDLE, FIRST_LEFT, TIME, lost=True),)
    assert run(pull(found.queue, FIRST_LEFT, 32), storage).next == 560
    faults = run(verify_queue(PLACE), storage).faults
    assert faults == (f"offsets {MIDDLE} to {FIRST_LEFT} are lost",)


@BOTH
def test_a_queue_whose_manifest_is_gone_begins_with_what_is_lost(positions):
    storage = MemoryStorage(positions)
    run(lossy(storage).account(FIRST_LEFT, TIME), storage)
    run(lossy(storage).commit(MODEL.batch(FIRST_LEFT, 560), TIME), storage)
    manifest = decode_manifest(storage.objects[PLACE.manifest])
    assert (manifest.minimum, manifest.end_offset) == (500, 560)
    queue = run(queue_of(PLACE, manifest), storage).queue
    with pytest.raises(LostMessagesError):
        run(pull(queue, 500, 32), storage)
    assert run(pull(queue, FIRST_LEFT, 32), storage).next == 560


def test_nothing_is_swept_of_a_queue_that_lost_messages():
    storage = with_loss(positions=False)
    stray = PLACE.part(0, 12_345, (1, 9), "9-9")
    storage.objects[stray] = b"it may have what is lost"
    objects = run(objects_of(PLACE), storage)
    assert not run(garbage_of(PLACE, objects, 1 << 60), storage)
    whole = MemoryStorage(positions=False)
    run(writer(whole).commit(MODEL.batch(500, MIDDLE), TIME), whole)
    whole.objects[stray] = b"a crash left it"
    assert run(garbage_of(PLACE, run(objects_of(PLACE), whole), 1 << 60), whole).unnamed
    del whole.objects[PLACE.manifest]
    missing = run(garbage_of(PLACE, run(objects_of(PLACE), whole), 1 << 60, listed=True), whole)
    assert not missing
    assert "the manifest is gone" in missing.fault


# --- why something is missing ---


@pytest.fixture
def config(tmp_path) -> TierConfig:
    return TierConfig(root=tmp_path, target="tier", broker=PLACE.broker)


def manifest_to(end: int) -> Manifest:
    storage = MemoryStorage()
    run(writer(storage).commit(MODEL.batch(500, end), TIME), storage)
    return decode_manifest(storage.objects[PLACE.manifest])


def gap(config: TierConfig, floor: int = 0, **known) -> list[tuple[int, int, bool]]:
    gaps = Gaps(config, lambda key: floor, known.pop("listed", ()), **known)
    manifest = known.pop("manifest", manifest_to(MIDDLE))
    return [(one.start, one.end, one.lost) for one in gaps.holes(PLACE, manifest, 540, TIME)]


def test_what_is_missing_for_no_reason_is_lost(config):
    assert gap(config) == [(520, 540, True)]
    assert gap(config, doubted=True, forced=True) == [(520, 540, True)]


def test_what_is_missing_for_a_reason_is_a_gap(config):
    assert gap(config, forced=True) == [(520, 540, False)]
    assert gap(config, floor=600) == [(520, 540, False)]
    assert gap(config, floor=530) == [(520, 530, False), (530, 540, True)]
    chosen = (TierSelection(("others",), (), config.start), config.choice)
    assert gap(config, chosen=chosen) == [(520, 540, False)]
    assert gap(config, chosen=(config.choice,)) == [(520, 540, True)]


def test_the_log_is_read_again_before_anything_that_it_may_have_is_given_up(config):
    with pytest.raises(PutBackError, match="520 to 540"):
        gap(config, read_again=True)


def test_a_queue_that_the_tier_never_had_begins_where_it_begins(config):
    gaps = Gaps(config, lambda key: 0, ())
    assert gaps.holes(PLACE, None, 540, TIME) == ()
    had = Gaps(config, lambda key: 510, {KEY})
    assert had.holes(PLACE, None, 540, TIME) == (Hole(510, 540, TIME, lost=True),)
    doubted = Gaps(config, lambda key: 0, (), doubted=True)
    assert doubted.holes(PLACE, None, 540, TIME) == (Hole(0, 540, TIME, lost=True),)


def test_a_store_knows_an_older_copy_of_its_tier(config):
    files = SimulatedDisk().files()
    known = TierProgress(1, 0, 0, (1, 2), 10)
    assert not is_older(known, recall(files, config, "broker-a"))
    remember(files, config, "broker-a", known)
    seen = recall(files, config, "broker-a")
    assert not is_older(known, seen)
    assert is_older(TierProgress(1, 0, 0, (1, 2), 9), seen)
    assert is_older(TierProgress(1, 0, 0, (1, 3), 10), seen), "another writer went on from a copy"
    assert not is_older(TierProgress(1, 0, 0, (1, 3), 11), seen)
    assert recall(files, config, "broker-b") is None
    with pytest.raises(NotWritableError, match="is the directory mounted"):
        require_new(files, config, "broker-a")


def test_the_log_hears_of_what_the_progress_has_and_not_of_what_is_committed():
    followed = FollowedLog(lambda: None)
    followed.committed, followed.read_to, followed.durable = 500, 600, 400
    assert (followed.report().durable, followed.report().released) == (400, 600)


def test_the_table_takes_an_older_manifest_only_where_it_was_put_back():
    storage = MemoryStorage()
    ours = writer(storage)
    older = run(ours.commit(MODEL.batch(500, 510), TIME), storage)
    newer = run(ours.commit(MODEL.batch(510, MIDDLE), TIME), storage)
    table = TierQueueTable()
    table.put(newer)
    table.put(older)
    assert table.end_of(KEY) == MIDDLE, "it was asked for before the newer one came"
    table.put(older, newer)
    assert (table.end_of(KEY), table.put_back) == (510, {KEY})


def test_the_table_counts_what_is_lost():
    table = TierQueueTable()
    table.put(decode_manifest(with_loss(positions=True).objects[PLACE.manifest]))
    assert (table.lost_messages, list(table.lost)) == (FIRST_LEFT - MIDDLE, [KEY])


# --- the list of queues ---


def names_of(storage: Storage) -> set[tuple[str, int]]:
    return run(load_queue_list(*NAMES), storage)


def test_queues_are_listed_in_pages_of_which_only_the_last_is_written_again(monkeypatch):
    monkeypatch.setattr(queue_list, "PAGE_QUEUES", 10)
    storage = MemoryStorage()
    ours = QueueList(*NAMES, run(claim(*NAMES, 1), storage))
    run(ours.hold(), storage)
    run(ours.add(("t", number) for number in range(25)), storage)
    first, second = (storage.objects[queues_path(*NAMES, page)] for page in (0, 1))
    run(ours.add([("t", 24), ("t", 25)]), storage)
    assert names_of(storage) == {("t", number) for number in range(26)} == ours.names
    assert storage.objects[queues_path(*NAMES, 0)] == first
    assert storage.objects[queues_path(*NAMES, 1)] == second


def test_an_earlier_writer_lists_nothing_any_more():
    storage = MemoryStorage()
    old = QueueList(*NAMES, run(claim(*NAMES, 1), storage))
    run(old.hold(), storage)
    new = QueueList(*NAMES, run(claim(*NAMES, 2), storage))
    run(new.hold(), storage)
    with pytest.raises(FencedError):
        run(old.add([("late", 0)]), storage)
    assert names_of(storage) == set()


def test_a_list_that_was_put_back_gets_its_queues_again():
    storage = MemoryStorage()
    ours = QueueList(*NAMES, run(claim(*NAMES, 1), storage))
    run(ours.hold(), storage)
    copy = storage.objects[queues_path(*NAMES, 0)]
    run(ours.add([("t", 0)]), storage)
    storage.objects[queues_path(*NAMES, 0)] = copy
    run(ours.add([("t", 1)]), storage)
    assert names_of(storage) == {("t", 0), ("t", 1)}


@pytest.mark.parametrize("what", ["gone", "emptied"])
def test_a_queue_whose_manifest_is_gone_or_empty_is_missed(what):
    storage = MemoryStorage()
    ours = writer(storage)
    run(ours.commit(MODEL.batch(500, MIDDLE), TIME), storage)
    epoch = run(claim(*NAMES, 1), storage)
    names = QueueList(*NAMES, epoch)
    run(names.hold(), storage)
    run(names.add([KEY]), storage)
    assert missing_queues(*NAMES, names_of(storage), [PLACE]) == []
    del storage.objects[PLACE.manifest]
    if what == "emptied":
        run(TierQueueWriter(PLACE, epoch, True, SMALL).fence(), storage)
    assert missing_queues(*NAMES, names_of(storage), []) == [PLACE]
    (fault,) = run(verify_queue(PLACE, listed=True), storage).faults
    assert "the manifest is gone, or empty" in fault
    assert run(verify_queue(PLACE), storage).faults == ()
    (sentence,) = run(totals(*NAMES), storage).unreadable
    assert sentence == fault


class Growing(MemoryStorage):
    """Has a queue more, listed too, once it was asked which queues there are."""

    names: QueueList | None = None

    def perform(self, call):
        found = super().perform(call)
        if isinstance(call, List | Folders) and self.names is not None:
            names, self.names = self.names, None
            run(writer(self).commit(MODEL.batch(500, MIDDLE), TIME), self)
            run(names.add([KEY]), self)
        return found


def test_a_queue_that_comes_while_queues_are_listed_is_not_missed():
    for looks in (
        lambda storage: run(totals(*NAMES), storage).unreadable,
        lambda storage: run(wanted_queues(*NAMES, Selection()), storage)[0],
    ):
        storage = Growing()
        names = QueueList(*NAMES, run(claim(*NAMES, 1), storage))
        run(names.hold(), storage)
        storage.names = names
        assert looks(storage) == []
        assert names_of(storage) == {KEY}


def test_a_list_that_cannot_be_read_is_named():
    storage = MemoryStorage()
    storage.objects[queues_path(*NAMES, 0)] = b"{}"
    with pytest.raises(CorruptRecordError, match=r"stratamq-queues-0000\.json"):
        names_of(storage)


# --- restoring ---


def restore(storage: Storage) -> Restored:
    files = SimulatedDisk().files()
    work = Restore(*NAMES, files, 1, random.Random(1), lambda restored: None, 4096)
    return run(work.run(storage.positions), storage)


@BOTH
def test_a_restore_says_what_the_tier_misses(positions):
    storage = with_loss(positions)
    epoch = run(claim(*NAMES, 1), storage)
    names = QueueList(*NAMES, epoch)
    run(names.hold(), storage)
    run(names.add([KEY, ("gone", 3)]), storage)
    record = ProgressObject(*NAMES, epoch)
    run(record.store(1, 10, 20), storage)
    run(record.hold(put_back=True), storage)
    restored = restore(storage)
    assert restored.messages == 560 - FIRST_LEFT
    sentences = "\n".join(restored.lost)
    assert f"offsets {MIDDLE} to {FIRST_LEFT} are lost" in sentences
    assert "queue 3 of gone" in sentences
    assert "the tier is an older copy of what it was" in sentences
