"""A new master's tier: without the messages that its log does not have, whatever happens."""

import json
from contextlib import suppress

import pytest

from stratamq.formats.generation_number import make_number
from stratamq.formats.tier_manifest import Manifest, decode_manifest
from stratamq.formats.tier_records import physical_offset_of
from stratamq.tier.driver.calls import Load, Procedure, StorageUnavailableError, Together
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.writing.claim import FencedError
from stratamq.tier.writing.cutting import first_not_shared
from stratamq.tier.writing.overlap import OtherMessagesError
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.tier.queue_model import PLACE, TIME, QueueModel, check, opened
from tests.tier.test_queue_writer import BOTH, MODEL, SMALL, fill, writer

OTHER = QueueModel(500, tuple((offset * 53) % 310 for offset in range(60)))
"""Another history: the messages of a new master."""
LONGER = QueueModel(500, (*MODEL.sizes, 5))


def commit_late(storage: MemoryStorage, batch) -> None:
    """By the writer of term 1, which another term's master has succeeded."""
    late = TierQueueWriter(PLACE, (make_number(1, 1, 0), 1), storage.positions, SMALL)
    run(late.commit(batch, TIME), storage)


@BOTH
@pytest.mark.parametrize("end", [0, 500, 501, 513, 514, 520, 531, 559, 560, 600])
def test_a_new_master_replaces_what_its_log_does_not_have(positions, end):
    storage = MemoryStorage(positions)
    old = fill(storage)
    successor = writer(storage, generation=2)
    run(successor.take_over(end, TIME), storage)
    kept = min(max(end, 500), 560)
    assert kept == 500 or check(storage, MODEL, kept) == kept
    with pytest.raises(FencedError):
        run(old.commit(LONGER.batch(560, 561), TIME), storage)
    mixed = QueueModel(500, MODEL.sizes[: kept - 500] + OTHER.sizes[kept - 500 :])
    for start in range(kept, 560, 9):
        run(successor.commit(mixed.batch(start, min(560, start + 9)), TIME), storage)
    assert check(storage, mixed, 560) == 560


@BOTH
@pytest.mark.parametrize("end", [500, 505, 514, 531])
def test_files_written_again_after_a_cut_are_not_deleted_with_what_was_cut(positions, end):
    storage = MemoryStorage(positions)
    fill(storage)
    successor = writer(storage, generation=2)
    run(successor.take_over(end, TIME), storage)
    for start in range(end, 560, 7):
        run(successor.commit(MODEL.batch(start, min(560, start + 7)), TIME), storage)
    run(successor.collect(TIME + 1), storage)
    assert check(storage, MODEL, 560) == 560


@BOTH
def test_a_cut_that_dies_at_any_call_is_done_again(positions):
    full = MemoryStorage(positions)
    fill(full)
    calls = 0
    while True:
        storage = MemoryStorage(positions)
        fill(storage)
        successor = writer(storage, generation=2)
        dying = _Dying(storage, calls)
        with suppress(StorageUnavailableError):
            run(successor.take_over(523, TIME), dying)
        done = dying.left > 0
        again = writer(storage, generation=2)
        run(again.take_over(523, TIME), storage)
        assert check(storage, MODEL, 523) == 523
        run(again.commit(OTHER.batch(523, 540), TIME), storage)
        mixed = QueueModel(500, MODEL.sizes[:23] + OTHER.sizes[23:])
        assert check(storage, mixed, 540) == 540
        if done:
            break
        calls += 1
    assert calls > 1


def test_a_late_commit_of_an_earlier_term_is_not_taken_for_ours():
    """The old master creates the queue in the tier after the new one has looked."""
    storage = MemoryStorage(True)
    successor = writer(storage, generation=make_number(2, 1, 0))
    assert run(successor.take_over(0, TIME), storage) is None
    commit_late(storage, OTHER.batch(500, 510))
    run(successor.commit(MODEL.batch(500, 520), TIME), storage)
    assert check(storage, MODEL, 520) == 520


@BOTH
def test_messages_that_came_late_below_what_is_committed_leave(positions):
    """This log had messages there that were deleted before they were uploaded: nothing compares."""
    storage = MemoryStorage(positions)
    commit_late(storage, OTHER.batch(500, 505))
    successor = writer(storage, generation=make_number(2, 1, 0))
    with pytest.raises(OtherMessagesError) as others:
        run(successor.commit(MODEL.batch(510, 520), TIME, may_cut=False), storage)
    assert others.value.leaves == 0
    run(successor.commit(MODEL.batch(510, 520), TIME), storage)
    found = opened(storage)
    assert found is not None and (found.queue.minimum, found.queue.end) == (510, 520)


@BOTH
def test_what_was_committed_since_the_look_is_judged_too(positions):
    """The earlier writer has no manifest of the successor's yet, and continues."""
    storage = MemoryStorage(positions)
    old = TierQueueWriter(PLACE, (1, 1), positions, SMALL)
    run(old.commit(OTHER.batch(500, 505), TIME), storage)
    successor = writer(storage, generation=2)
    run(successor.open(), storage)
    run(old.commit(OTHER.batch(505, 510), TIME), storage)

    def end_of(manifest: Manifest) -> Procedure[int]:
        return 503 if manifest.end_offset == 510 else manifest.end_offset
        yield

    run(successor.take_over(560, TIME, end_of=end_of), storage)
    assert check(storage, OTHER, 503) == 503


@BOTH
def test_no_collection_takes_what_came_late_for_its_own(positions):
    storage = MemoryStorage(positions)
    commit_late(storage, OTHER.batch(500, 505))
    successor = writer(storage, generation=make_number(2, 1, 0))
    assert run(successor.fence(), storage).epoch == (make_number(1, 1, 0), 1)


@BOTH
def test_a_queue_that_a_stopped_writer_made_leaves_whole_at_the_next_promotion(positions):
    """The master of term 1 made it after the one of term 2 had taken the tier over."""
    storage = MemoryStorage(positions)
    commit_late(storage, OTHER.batch(500, 510))
    successor = writer(storage, generation=make_number(3, 1, 0))
    run(successor.take_over(510, TIME, make_number(2, 1, 0)), storage)
    found = opened(storage)
    assert found is not None and found.manifest.minimum == found.manifest.end_offset
    run(successor.commit(MODEL.batch(500, 520), TIME), storage)
    assert check(storage, MODEL, 520) == 520


@BOTH
def test_offsets_given_again_below_what_retention_has_deleted_are_in_the_tier(positions):
    storage = MemoryStorage(positions)
    run(fill(storage).expire(TIME + 1_000_000_000, TIME), storage)
    mixed = QueueModel(500, MODEL.sizes[:20] + OTHER.sizes[20:])
    successor = writer(storage, generation=2)
    manifest = run(successor.take_over(520, TIME), storage)
    assert manifest is not None and manifest.minimum == 520
    for start in range(520, 560, 9):
        run(successor.commit(mixed.batch(start, min(560, start + 9)), TIME), storage)
    run(successor.collect(TIME + 1), storage)
    assert check(storage, mixed, 560) == 560


@BOTH
def test_the_second_batch_that_both_have_is_compared_as_the_first_was(positions):
    storage = MemoryStorage(positions)
    fill(storage)
    mixed = QueueModel(500, MODEL.sizes[:10] + OTHER.sizes[10:])
    successor = TierQueueWriter(PLACE, (2, 1), positions, SMALL, replaces=True)
    run(successor.commit(mixed.batch(500, 510), TIME), storage)
    run(successor.commit(mixed.batch(510, 560), TIME), storage)
    assert check(storage, mixed, 560) == 560


class _Dying:
    """A storage whose call number `left` and all later ones do not come to be."""

    positions: bool

    def __init__(self, storage: MemoryStorage, left: int) -> None:
        self._storage, self.left = storage, left + 1
        self.positions = storage.positions

    def perform(self, call):
        if isinstance(call, Together):
            return [self.perform(one) for one in call.calls]
        self.left -= 1
        if self.left <= 0:
            raise StorageUnavailableError("the storage is gone")
        return self._storage.perform(call)


# --- where the log lacks what would decide ---


def place_of(offset: int) -> int:
    return physical_offset_of(MODEL.record(offset))


@BOTH
@pytest.mark.parametrize("last", [500, 513, 514, 540, 559])
def test_parts_with_a_message_behind_the_shared_history_are_known(positions, last):
    storage = MemoryStorage(positions)
    fill(storage)
    found = opened(storage)
    ends = [part.first + part.count for _, parts in found.parts for part in parts]
    stop = first_not_shared(found, place_of(last) + 1)
    assert stop in (500, *ends)
    assert stop <= last + 1
    assert next((end for end in ends if end > stop), last + 2) > last + 1 or stop == last + 1
    assert first_not_shared(found, place_of(559) + 1) == 560
    assert first_not_shared(found, 0) == 500


@BOTH
def test_places_are_known_behind_a_merge_and_in_the_lists_of_full_segments(positions):
    storage = MemoryStorage(positions)
    ours = fill(storage, step=1)
    run(ours.merge(TIME), storage)
    for _, parts in opened(storage).parts:
        for part in parts:
            assert part.place == place_of(part.first + part.count - 1)


@BOTH
def test_what_is_left_of_a_part_that_was_cut_is_shared(positions):
    storage = MemoryStorage(positions)
    fill(storage)
    run(writer(storage, generation=2).take_over(530, TIME), storage)
    assert first_not_shared(opened(storage), place_of(529) + 1) == 530


@BOTH
def test_places_in_the_log_of_before_a_restore_do_not_count(positions):
    storage = MemoryStorage(positions)
    fill(storage)
    successor = writer(storage, generation=2)
    run(successor.take_over(1_000, TIME, other_log=True), storage)
    assert first_not_shared(opened(storage), 0) == 560
    run(successor.commit(LONGER.batch(560, 561), TIME), storage)
    assert first_not_shared(opened(storage), 0) in range(540, 561)
    run(writer(storage, generation=3).take_over(540, TIME), storage)
    assert opened(storage).manifest.other_log == 540


@BOTH
def test_a_manifest_of_before_places_were_kept_contains_none(positions):
    storage = MemoryStorage(positions)
    fill(storage)
    document = json.loads(storage.perform(Load(PLACE.manifest))[0])
    del document["otherLog"]
    for segment in document["records"]:
        segment["parts"] = [row[:9] for row in segment.get("parts", ())]
    manifest = decode_manifest(json.dumps(document).encode())
    assert {part.place for part in manifest.records[-1].parts} == {-1}
    assert manifest.other_log == 0
