"""Commits of a queue's messages to a tier: whole, once, in order, whatever happens in between."""

from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from stratamq.errors import StrataError
from stratamq.formats.message_status import PullStatus
from stratamq.formats.tier_manifest import decode_manifest, encode_manifest
from stratamq.formats.tier_names import parse_segment_name
from stratamq.tier.containers.place import TierLimits
from stratamq.tier.driver.calls import (
    Create,
    Procedure,
    StorageCall,
    StorageUnavailableError,
    Swap,
    Together,
    WriteAt,
)
from stratamq.tier.driver.memory import MemoryStorage, content_version
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.pull import pull
from stratamq.tier.reading.times import offset_by_time
from stratamq.tier.writing.claim import FencedError, claim
from stratamq.tier.writing.queue_writer import TierQueueWriter
from stratamq.tier.writing.retention import plan_expiry
from tests.tier.queue_model import PLACE, TIME, QueueModel, check, opened

SMALL = TierLimits(
    record_segment_bytes=2_000, unit_segment_bytes=140, roll_min_bytes=600, join_bytes=500
)
MODEL = QueueModel(500, tuple((offset * 37) % 300 for offset in range(60)))
BOTH = pytest.mark.parametrize("positions", [True, False], ids=["positions", "parts"])


def writer(
    storage: MemoryStorage, limits: TierLimits = SMALL, generation: int = 1
) -> TierQueueWriter:
    epoch = run(claim(PLACE.cluster, PLACE.broker, generation), storage)
    return TierQueueWriter(PLACE, epoch, storage.positions, limits)


def fill(storage: MemoryStorage, step: int = 7, model: QueueModel = MODEL) -> TierQueueWriter:
    ours = writer(storage)
    for start in range(model.first, model.end, step):
        run(ours.commit(model.batch(start, min(model.end, start + step)), TIME), storage)
    return ours


@BOTH
@pytest.mark.parametrize("step", [1, 3, 7, 60])
def test_what_is_committed_is_read_back_byte_for_byte(positions, step):
    storage = MemoryStorage(positions)
    fill(storage, step)
    assert check(storage, MODEL, MODEL.end) == MODEL.end


@BOTH
def test_no_record_is_in_two_segments_and_none_is_above_the_limit(positions):
    storage = MemoryStorage(positions)
    fill(storage)
    found = opened(storage)
    assert found is not None
    assert len(found.manifest.records) > 3
    ends = [segment.end for segment in found.manifest.records]
    assert [segment.base for segment in found.manifest.records] == [0, *ends[:-1]]
    assert all(segment.size <= SMALL.record_segment_bytes for segment in found.manifest.records)
    assert all(unit.size <= SMALL.unit_segment_bytes for unit in found.manifest.units)


@BOTH
def test_a_message_larger_than_a_segment_has_one_alone(positions):
    storage = MemoryStorage(positions)
    model = QueueModel(0, (10, 20, 5_000, 30, 40))
    ours = writer(storage)
    run(ours.commit(model.batch(0, 5), TIME), storage)
    check(storage, model, 5)
    found = opened(storage)
    assert found is not None
    assert [segment.count for segment in found.manifest.records] == [2, 1, 2]


@BOTH
def test_a_batch_that_comes_again_adds_nothing(positions):
    storage = MemoryStorage(positions)
    ours = fill(storage)
    before = dict(storage.objects)
    run(ours.commit(MODEL.batch(520, 540), TIME), storage)
    assert storage.objects == before


@BOTH
def test_a_batch_that_overlaps_adds_what_is_new(positions):
    storage = MemoryStorage(positions)
    ours = writer(storage)
    run(ours.commit(MODEL.batch(500, 520), TIME), storage)
    run(ours.commit(MODEL.batch(510, 530), TIME), storage)
    assert check(storage, MODEL, 530) == 530


@BOTH
def test_a_gap_is_recorded_and_the_history_before_it_stays(positions):
    storage = MemoryStorage(positions)
    ours = writer(storage)
    run(ours.commit(MODEL.batch(500, 520), TIME), storage)
    run(ours.commit(MODEL.batch(533, 550), TIME + 5), storage)
    check(storage, MODEL, 550)
    found = opened(storage)
    assert found is not None
    assert [(hole.start, hole.end, hole.found_ms) for hole in found.manifest.holes] == [
        (520, 533, TIME + 5)
    ]


@BOTH
def test_an_old_segment_of_some_size_is_left_for_a_new_one(positions):
    storage = MemoryStorage(positions)
    ours = writer(storage)
    day = SMALL.roll_after_ms
    run(ours.commit(MODEL.batch(500, 505), TIME), storage)
    begun = MODEL.batch(500, 505).times[0]
    run(ours.commit(MODEL.batch(505, 506), int(begun) + day), storage)
    assert len(opened(storage).manifest.records) == 1
    run(ours.commit(MODEL.batch(506, 507), int(begun) + day + 1), storage)
    assert len(opened(storage).manifest.records) == 2
    check(storage, MODEL, 507)


@BOTH
@pytest.mark.parametrize(("small_ms", "segments"), [(0, 1), (100_000_000, 2)])
def test_a_small_segment_is_left_when_it_is_older_still_or_never(positions, small_ms, segments):
    storage = MemoryStorage(positions)
    ours = writer(storage, replace(SMALL, roll_small_after_ms=small_ms))
    run(ours.commit(MODEL.batch(500, 501), TIME), storage)
    begun = int(MODEL.batch(500, 501).times[0])
    run(ours.commit(MODEL.batch(501, 502), begun + 100_000_000), storage)
    assert opened(storage).manifest.end < SMALL.roll_min_bytes
    assert len(opened(storage).manifest.records) == 1
    run(ours.commit(MODEL.batch(502, 503), begun + 100_000_001), storage)
    assert len(opened(storage).manifest.records) == segments
    check(storage, MODEL, 503)


def test_the_times_of_a_segment_are_those_of_its_messages():
    storage = MemoryStorage()
    fill(storage, 60)
    found = opened(storage)
    for unit in found.manifest.units:
        first, last = unit.base // 20, unit.end // 20 - 1
        assert (unit.begin_ms, unit.end_ms) == (TIME + first * 10, TIME + last * 10)
    for segment in found.manifest.records:
        first, last = segment.first, segment.end_offset - 1
        assert (segment.begin_ms, segment.end_ms) == (TIME + first * 10, TIME + last * 10)


def test_files_are_in_rocketmqs_places():
    storage = MemoryStorage()
    fill(storage)
    folder = f"212d6b50_DefaultCluster/broker-a/{PLACE.topic}/3/"
    files = [path for path in storage.objects if path.startswith(folder)]
    names = {"COMMIT_LOG": [], "CONSUME_QUEUE": []}
    for path in files:
        kind, _, name = path.removeprefix(folder).partition("/")
        if kind in names and not name.endswith(".json"):
            names[kind].append(parse_segment_name(name))
    found = opened(storage)
    assert sorted(names["COMMIT_LOG"]) == [segment.base for segment in found.manifest.records]
    assert sorted(names["CONSUME_QUEUE"]) == [unit.base for unit in found.manifest.units]


@BOTH
def test_a_time_is_found_with_three_calls(positions):
    storage = _Counting(positions)
    fill(storage)
    found = opened(storage)
    for offset in (500, 501, 523, 544, 559):
        storage.calls = 0
        at = run(offset_by_time(found.queue, TIME + offset * 10, False, found.points), storage)
        assert at == offset
        assert storage.calls <= 3
    assert run(offset_by_time(found.queue, 0, False, found.points), storage) == 500
    assert run(offset_by_time(found.queue, TIME * 2, True, found.points), storage) == 560


class _Counting(MemoryStorage):
    calls = 0

    def perform(self, call):
        self.calls += 1
        return super().perform(call)


@BOTH
def test_the_manifest_stays_small_while_segments_become_many(positions):
    storage = MemoryStorage(positions)
    model = QueueModel(0, (1_500,) * 200)
    fill(storage, 5, model)
    found = opened(storage)
    assert len(found.manifest.records) == 200
    assert len(storage.objects[PLACE.manifest]) < 300 * 200
    check(storage, model, 200)


# --- retention ---


def stored(offset: int) -> int:
    return TIME + offset * 10


@BOTH
def test_whole_segments_of_old_messages_go_and_the_rest_stays(positions):
    storage = MemoryStorage(positions)
    ours = fill(storage)
    before = opened(storage).manifest
    last_to_go = before.records[2]
    count = run(ours.expire(last_to_go.end_ms + 1, TIME), storage)
    assert count == 3
    found = opened(storage)
    assert found.queue.minimum == last_to_go.end_offset
    assert check(storage, MODEL, MODEL.end) == MODEL.end
    answer = run(pull(found.queue, MODEL.first, 5), storage)
    assert (answer.status, answer.next) == (PullStatus.OFFSET_TOO_SMALL, last_to_go.end_offset)


@BOTH
def test_objects_are_deleted_after_the_grace_time_and_no_others(positions):
    storage = MemoryStorage(positions)
    ours = fill(storage)
    old_reader = opened(storage)
    run(ours.expire(stored(530), TIME), storage)
    assert run(ours.collect(TIME), storage) == 0
    assert run(pull(old_reader.queue, 500, 5), storage).status is PullStatus.FOUND
    taken_out = [one.path for one in opened(storage).manifest.dropped]
    assert run(ours.collect(TIME + 1), storage) == len(taken_out) > 3
    assert not [path for path in taken_out if path in storage.objects]
    assert opened(storage).manifest.dropped == ()
    check(storage, MODEL, MODEL.end)


@BOTH
def test_a_queue_of_which_everything_went_continues_where_it_was(positions):
    storage = MemoryStorage(positions)
    ours = fill(storage)
    end = opened(storage).manifest.end
    run(ours.expire(stored(10_000), TIME), storage)
    run(ours.collect(TIME + 1), storage)
    found = opened(storage)
    assert (found.queue.minimum, found.manifest.end_offset) == (560, 560)
    model = QueueModel(500, (*MODEL.sizes, *(10,) * 20))
    successor = writer(storage, generation=2)
    run(successor.commit(model.batch(555, 580), TIME), storage)
    assert check(storage, model, 580) == 580
    assert opened(storage).manifest.records[0].base == end


def test_the_plan_reports_why_a_segment_stays():
    storage = MemoryStorage()
    fill(storage)
    manifest = opened(storage).manifest
    fates = plan_expiry(manifest, manifest.records[1].end_ms + 1)
    assert [fate.goes for fate in fates[:4]] == [True, True, False, False]
    assert str(manifest.records[2].end_ms) in fates[2].reason
    assert fates[3].reason == "behind one that stays"


@BOTH
def test_a_stop_in_any_call_of_retention_loses_no_message_that_stays(positions):
    storage = MemoryStorage(positions)
    fill(storage)
    kept = opened(storage).manifest.records[2].first
    stops = 0
    for step in ("expire", "collect"):
        number = 0
        while True:
            stopped = copy_of(storage)
            dying = writer(stopped, generation=2)
            if step == "collect":
                run(dying.expire(stored(kept), TIME), stopped)
            procedure = (
                dying.expire(stored(kept), TIME) if step == "expire" else dying.collect(TIME + 1)
            )
            if not stop_at(procedure, stopped, number, 1):
                break
            stops += 1
            check(stopped, MODEL, MODEL.end)
            successor = writer(stopped, generation=3)
            run(successor.expire(stored(kept), TIME), stopped)
            run(successor.collect(TIME + 1), stopped)
            check(stopped, MODEL, MODEL.end)
            found = opened(stopped)
            assert found.queue.minimum == kept
            named = {part.name for _, parts in found.parts for part in parts}
            gone = [path for path in storage.objects if path not in stopped.objects]
            assert gone
            assert not named & set(gone)
            number += 1
    assert stops > 5


# --- orphans ---


@BOTH
def test_what_accidents_left_is_found_and_no_live_object(positions):
    for seed in range(40):
        random = Random(seed)
        storage = MemoryStorage(positions, lambda: 5)
        ours = writer(storage)
        for start in range(500, 560, 6):
            while not faulty(storage, ours.commit(MODEL.batch(start, start + 6), TIME), random):
                if random.random() < 0.3:
                    ours = writer(storage)
        run(ours.expire(stored(520), TIME), storage)
        check(storage, MODEL, 560)
        assert run(ours.sweep(5), storage) == []  # nothing is old enough
        found = run(ours.sweep(6, dry_run=True), storage)
        assert all(one.path in storage.objects for one in found)
        assert run(ours.sweep(6), storage) == found
        assert not [one for one in found if one.path in storage.objects]
        assert check(storage, MODEL, 560) == 560
        assert run(ours.sweep(6), storage) == []


def test_a_part_that_was_never_named_is_an_orphan():
    storage = MemoryStorage(positions=False)
    fill(storage)
    ours = writer(storage)
    stop_at(ours.commit(QueueModel(500, (*MODEL.sizes, 9)).batch(560, 561), TIME), storage, 1, 1)
    (orphan,) = run(ours.sweep(1), storage)
    assert ".parts/" in orphan.path
    check(storage, MODEL, MODEL.end)


def test_a_manifest_comes_back():
    storage = MemoryStorage(positions=False)
    fill(storage)
    manifest = opened(storage).manifest
    assert decode_manifest(encode_manifest(manifest)) == manifest


# --- accidents ---


class StoppedError(Exception):
    """The writer's process has ended."""


def perform(storage: MemoryStorage, call: StorageCall) -> object:
    """A call, or several at once, of which all are done."""
    if isinstance(call, Together):
        return [storage.perform(each) for each in call.calls]
    return storage.perform(call)


def performed_before_and_inside(call: StorageCall) -> list[StorageCall | None]:
    """What the storage may have done of a call when the process ends."""
    outcomes: list[StorageCall | None] = [None, call]
    if isinstance(call, WriteAt) and len(call.data) > 1:
        outcomes[1:1] = [
            replace(call, data=call.data[:size])
            for size in {1, len(call.data) // 2, len(call.data) - 1}
        ]
    return outcomes


def stop_at(procedure: Procedure, storage: MemoryStorage, number: int, outcome: int) -> bool:
    """Run it up to its call `number`, of which the outcome of that index happens. Whether there is
    such a call, and such an outcome."""
    result, error = None, None
    while True:
        try:
            call = procedure.send(result) if error is None else procedure.throw(error)
        except StopIteration:
            return False
        if number == 0:
            outcomes = performed_before_and_inside(call)
            if outcome >= len(outcomes):
                raise IndexError
            with suppress(StrataError):
                if outcomes[outcome] is not None:
                    perform(storage, outcomes[outcome])
            return True
        number -= 1
        result = error = None
        try:
            result = perform(storage, call)
        except StrataError as failure:
            error = failure


def copy_of(storage: MemoryStorage) -> MemoryStorage:
    copied = MemoryStorage(storage.positions)
    copied.objects = dict(storage.objects)
    return copied


@BOTH
@pytest.mark.parametrize("step", [4, 20])
def test_a_stop_before_inside_or_after_any_call_loses_and_doubles_nothing(positions, step):
    """The next writer continues from what is committed; with another division into batches."""
    storage = MemoryStorage(positions)
    stops = 0
    ours = writer(storage)
    for start in range(MODEL.first, MODEL.end, step):
        batch = MODEL.batch(start, min(MODEL.end, start + step))
        number = 0
        while True:
            outcome = 0
            found = False
            while True:
                stopped = copy_of(storage)
                epoch = run(claim(PLACE.cluster, PLACE.broker, 2), stopped)
                dying = TierQueueWriter(PLACE, epoch, positions, SMALL)
                try:
                    if not stop_at(dying.commit(batch, TIME), stopped, number, outcome):
                        break
                except IndexError:
                    break
                found = True
                stops += 1
                end = check(stopped, MODEL, batch.first)
                assert end in (batch.first, batch.end)
                successor = writer(stopped, generation=3)
                run(
                    successor.commit(MODEL.batch(max(500, end - 3), min(560, end + 11)), TIME),
                    stopped,
                )
                run(successor.commit(MODEL.batch(500, 560), TIME), stopped)
                assert check(stopped, MODEL, 560) == 560
                outcome += 1
            if not found:
                break
            number += 1
        run(ours.commit(batch, TIME), storage)
    assert stops > 50


def faulty(storage: MemoryStorage, procedure: Procedure, random: Random) -> bool:
    """Run it over a storage that fails before, inside or after a call. Whether it ended well."""
    result, error = None, None
    while True:
        try:
            call = procedure.send(result) if error is None else procedure.throw(error)
        except StopIteration:
            return True
        except (StorageUnavailableError, FencedError):
            return False
        result = error = None
        luck = random.random()
        if luck < 0.1:
            if luck < 0.07 and isinstance(call, Create | Swap | WriteAt):
                outcome = random.choice(performed_before_and_inside(call))
                with suppress(StrataError):
                    if outcome is not None:
                        perform(storage, outcome)
            error = StorageUnavailableError("no answer")
            continue
        try:
            result = perform(storage, call)
        except StrataError as failure:
            error = failure


@pytest.mark.parametrize("positions", [True, False], ids=["positions", "parts"])
@pytest.mark.parametrize("seeds", [range(150), range(150, 300)])
def test_over_a_storage_that_fails_every_message_is_there_once(positions, seeds):
    for seed in seeds:
        random = Random(seed)
        storage = MemoryStorage(positions)
        ours = writer(storage)
        acknowledged = MODEL.first
        for _ in range(40):
            start = random.randint(MODEL.first, acknowledged)
            end = random.randint(start, MODEL.end)
            if start == end:
                continue
            if random.random() < 0.1:
                ours = writer(storage, generation=random.choice([1, 1, 1]))
            if faulty(
                storage,
                ours.commit(MODEL.batch(start, end), TIME + random.randint(0, 10**9)),
                random,
            ):
                acknowledged = max(acknowledged, end)
        check(storage, MODEL, acknowledged)


# --- two writers ---


@BOTH
def test_a_writer_that_was_replaced_is_fenced(positions):
    storage = MemoryStorage(positions)
    old = fill(storage)
    new = writer(storage, generation=2)
    model = QueueModel(500, MODEL.sizes + (10,) * 20)
    run(new.commit(model.batch(560, 570), TIME), storage)
    with pytest.raises(FencedError):
        run(old.commit(model.batch(560, 575), TIME), storage)
    assert check(storage, model, 570) == 570


def test_a_writer_of_an_earlier_generation_cannot_claim():
    storage = MemoryStorage()
    writer(storage, generation=5)
    with pytest.raises(FencedError):
        writer(storage, generation=4)
    assert run(claim(PLACE.cluster, PLACE.broker, 5), storage) == (5, 2)


def race(storage: MemoryStorage, seed: int) -> None:
    """Two writers, their calls in any order. The later one is never fenced; what either of
    them got acknowledged as committed stays."""
    random = Random(seed)
    first = writer(storage)
    run(first.commit(MODEL.batch(500, 507), TIME), storage)
    writers = [first, writer(storage, generation=random.choice([1, 2]))]
    acknowledged = [507, 500]
    running: list[Running | None] = [None, None]
    for _ in range(400):
        turn = random.randint(0, 1)
        procedure = running[turn]
        if procedure is None:
            start = random.randint(500, acknowledged[turn])
            end = random.randint(start, min(560, start + 15))
            procedure = Running(writers[turn].commit(MODEL.batch(start, end), TIME), end)
        running[turn] = procedure
        try:
            ended = procedure.step(storage)
        except FencedError:
            assert turn == 0
            break
        if ended:
            acknowledged[turn] = max(acknowledged[turn], procedure.end)
            running[turn] = None
    check(storage, MODEL, max(acknowledged))


class Running:
    """A commit that is done call by call."""

    def __init__(self, procedure: Procedure, end: int) -> None:
        self.end = end
        self._procedure = procedure
        self._answer: tuple[object, StrataError | None] = (None, None)

    def step(self, storage: MemoryStorage) -> bool:
        """One call. Whether the commit has ended."""
        result, error = self._answer
        try:
            call = self._procedure.send(result) if error is None else self._procedure.throw(error)
        except StopIteration:
            return True
        try:
            self._answer = (perform(storage, call), None)
        except StrataError as failure:
            self._answer = (None, failure)
        return False


@BOTH
def test_two_writers_at_once_lose_and_double_nothing(positions):
    for seed in range(200):
        race(MemoryStorage(positions), seed)


class _SwapsAnything(MemoryStorage):
    """A storage whose swap does not compare."""

    def perform(self, call):
        if isinstance(call, Swap):
            present = self.objects.get(call.path)
            call = replace(call, version=None if present is None else content_version(present))
        return super().perform(call)


@BOTH
def test_without_compare_and_swap_two_writers_lose_messages(positions):
    def fails(seed: int) -> bool:
        try:
            race(_SwapsAnything(positions), seed)
        except AssertionError:
            return True
        return False

    assert any(fails(seed) for seed in range(200))
