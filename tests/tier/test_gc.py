"""`tier gc` and `tier status`: what nothing names goes, and nothing else."""

import json
import os
from random import Random

import pytest

from stratamq.cli import __main__ as command_line
from stratamq.files.simulated_faults import SimulatedCrash
from stratamq.formats.tier_manifest import Epoch
from stratamq.formats.tier_names import SegmentType, segment_path
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.calls import Create, Delete, Swap, WriteAt
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.objects import open_objects
from stratamq.tier.driver.simulated import SimulatedBackend, When
from stratamq.tier.driver.storage import Storage, attempt, run
from stratamq.tier.reading.contents import BrokerObjects, totals
from stratamq.tier.writing.claim import FencedError, claim
from stratamq.tier.writing.collecting import Garbage, claim_to_collect, collect, garbage_of
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.support import s3_servers
from tests.tier.queue_model import PLACE, TIME, QueueModel, check, opened

SMALL = TierLimits(
    record_segment_bytes=2_000, unit_segment_bytes=140, roll_min_bytes=600, join_bytes=500
)
MODEL = QueueModel(500, tuple((offset * 37) % 300 for offset in range(60)))
BOTH = pytest.mark.parametrize("positions", [True, False], ids=["positions", "parts"])
NAMES = (PLACE.cluster, PLACE.broker)
AGES = 1 << 62


@pytest.fixture(scope="module")
def moto():
    with s3_servers.moto_server() as server:
        yield server


def claimed(storage: Storage, generation: int = 1) -> Epoch:
    return run(claim(*NAMES, generation), storage)


def writer(storage: Storage, epoch: Epoch, place: QueuePlace = PLACE) -> TierQueueWriter:
    return TierQueueWriter(place, epoch, storage.positions, SMALL)


def fill(storage: Storage, ours: TierQueueWriter, start: int = 500, end: int = 560) -> None:
    for first in range(start, end, 7):
        run(ours.commit(MODEL.batch(first, min(end, first + 7)), TIME), storage)


def garbage(storage: Storage, before_ms: int = AGES) -> dict[QueuePlace, Garbage]:
    listing, found = BrokerObjects(*NAMES), {}
    while (group := run(listing.following(), storage)) is not None:
        place, objects = group
        if place is not None:
            found[place] = run(garbage_of(place, objects, before_ms), storage)
    return found


def collect_all(storage: Storage, epoch: Epoch, before_ms: int = AGES) -> None:
    for place, found in garbage(storage, before_ms).items():
        if found:
            run(collect(place, epoch, storage.positions, before_ms), storage)


@BOTH
@pytest.mark.parametrize("call", range(1, 12))
def test_what_a_crash_left_is_found_and_deleted_and_all_messages_stay(positions, call):
    backend = SimulatedBackend(call, positions=positions)
    storage = backend.storage()
    first = writer(storage, claimed(storage))
    fill(storage, first, 500, 521)
    backend.crash_at(backend.calls + call, When.AFTER)
    with pytest.raises(SimulatedCrash):
        fill(storage, first, 521, 560)
    kept = backend.memory
    committed = check(kept, MODEL, 521)
    left = created_and_not_named(backend)
    second = writer(kept, claimed(kept, 2))
    fill(kept, second, committed)
    found = garbage(kept)[PLACE]
    collect_all(kept, run(claim_to_collect(*NAMES, take_over=True), kept))
    assert check(kept, MODEL, 560) == 560
    assert all(one.path not in kept.objects for one in found.unnamed)
    assert not garbage(kept)[PLACE]
    if not positions:
        assert {one.path for one in found.unnamed} == left


def created_and_not_named(backend: SimulatedBackend) -> set[str]:
    """What was created behind the last swap."""
    behind: set[str] = set()
    for call in backend.trace:
        if isinstance(call, Create):
            behind.add(call.path)
        elif isinstance(call, Swap):
            behind.clear()
    return behind


@BOTH
def test_looking_changes_nothing(positions):
    storage = MemoryStorage(positions)
    ours = writer(storage, claimed(storage))
    fill(storage, ours)
    before = dict(storage.objects)
    assert not garbage(storage)[PLACE]
    assert storage.objects == before


def staged(storage: MemoryStorage, ours: TierQueueWriter, start: int):
    """A commit that was stopped before its swap: the rest of it, once all else is written."""
    run(ours.open(), storage)
    procedure = ours.commit(MODEL.batch(start, start + 7), TIME)
    call = next(procedure)
    while isinstance(call, Create | WriteAt):
        call = procedure.send(storage.perform(call))
    return procedure, call


@pytest.mark.parametrize("begun", [True, False], ids=["a-queue", "a-new-queue"])
def test_a_writer_that_was_stopped_before_its_swap_cannot_name_what_was_deleted(begun):
    storage = MemoryStorage(positions=False)
    ours = writer(storage, claimed(storage))
    fill(storage, ours, 500, 514 if begun else 500)
    procedure, call = staged(storage, ours, 514 if begun else 500)
    epoch = run(claim_to_collect(*NAMES, take_over=True), storage)
    lost = garbage(storage)[PLACE].unnamed
    collect_all(storage, epoch)
    assert lost
    assert not {one.path for one in lost} & storage.objects.keys()
    with pytest.raises(FencedError):
        while True:
            outcome = attempt(storage, call)
            error = outcome.error
            call = procedure.throw(error) if error else procedure.send(outcome.value)
    later = writer(storage, claimed(storage, 2))
    fill(storage, later, 500)
    assert check(storage, MODEL, 560) == 560


def test_without_the_fence_a_stopped_writer_names_what_was_deleted(monkeypatch):
    def no_fence(self):
        return (yield from self.open())

    monkeypatch.setattr(TierQueueWriter, "fence", no_fence)
    with pytest.raises(StopIteration):
        test_a_writer_that_was_stopped_before_its_swap_cannot_name_what_was_deleted(begun=True)


@BOTH
def test_a_queue_that_was_fenced_before_its_first_commit_begins_where_its_messages_do(positions):
    storage = MemoryStorage(positions)
    epoch = claimed(storage)
    run(writer(storage, epoch).fence(), storage)
    assert opened(storage) is None
    assert run(totals(*NAMES), storage).queues == 0
    fill(storage, writer(storage, claimed(storage)))
    found = opened(storage)
    assert found is not None
    assert (found.manifest.minimum, found.manifest.holes) == (500, ())
    assert check(storage, MODEL, 560) == 560


def test_objects_of_a_queue_without_a_manifest_go_if_their_names_are_ours_alone():
    storage = MemoryStorage(positions=False)
    ours = writer(storage, claimed(storage))
    staged(storage, ours, 500)
    theirs = segment_path(NAMES[0], PLACE.path, SegmentType.COMMIT_LOG, 0)
    storage.perform(Create(theirs, b"RocketMQ's"))
    collect_all(storage, run(claim_to_collect(*NAMES, take_over=True), storage))
    names = {path.rpartition("/")[2] for path in storage.objects}
    assert len(storage.objects) == 3
    assert names == {
        theirs.rpartition("/")[2],
        "stratamq-manifest.json",
        "stratamq-writer.json",
    }


@BOTH
def test_what_retention_took_out_goes_when_its_grace_time_is_over(positions):
    storage = MemoryStorage(positions)
    ours = writer(storage, claimed(storage))
    fill(storage, ours)
    run(ours.expire(TIME + 5_300, now_ms=1_000), storage)
    found = opened(storage)
    assert found is not None
    dropped = {one.path for one in found.manifest.dropped}
    assert dropped
    assert not garbage(storage, before_ms=1_000)[PLACE]
    assert set(garbage(storage, before_ms=1_001)[PLACE].dropped) == dropped
    collect_all(storage, run(claim_to_collect(*NAMES, take_over=True), storage), 1_001)
    assert not dropped & storage.objects.keys()
    check(storage, MODEL, 560)


def test_a_tier_that_a_service_has_claimed_is_left_to_it():
    storage = MemoryStorage()
    claimed(storage, 7)
    with pytest.raises(FencedError):
        run(claim_to_collect(*NAMES, take_over=False), storage)
    assert run(claim_to_collect(*NAMES, take_over=True), storage) == (7, 2)


@BOTH
def test_a_collection_that_dies_anywhere_loses_nothing_and_is_begun_again(positions):
    for seed in range(60):
        backend = SimulatedBackend(seed, positions=positions)
        random = Random(seed)
        storage = backend.storage()
        ours = writer(storage, claimed(storage))
        fill(storage, ours, 500, 530)
        run(ours.expire(TIME + 5_100, now_ms=1), storage)
        procedure = ours.commit(MODEL.batch(530, 560), TIME)
        call = next(procedure)
        for _ in range(random.randint(0, 3)):
            call = procedure.send(storage.perform(call))
        backend.crash_at(backend.calls + random.randint(1, 14), random.choice(list(When)))
        died = False
        try:
            collect_all(storage, run(claim_to_collect(*NAMES, take_over=True), storage))
        except SimulatedCrash:
            died = True
        check(backend.memory, MODEL, 530)
        backend.settle()
        again = backend.storage()
        collect_all(again, run(claim_to_collect(*NAMES, take_over=True), again))
        committed = check(backend.memory, MODEL, 530)
        assert not garbage(again)[PLACE], died
        fill(again, writer(again, claimed(again, 2)), committed)
        check(backend.memory, MODEL, 560)


def stratamq(*words: str) -> int:
    return command_line.run(["tier", *words])


def test_the_commands_show_a_directory_and_delete_what_is_left_in_it(tmp_path, capsys):
    from stratamq.tier.driver.opening import open_storage

    tier = str(tmp_path / "tier")
    with open_storage(tier) as storage:
        epoch = run(claim(*NAMES, 0), storage)
        fill(storage, TierQueueWriter(PLACE, epoch, True, SMALL))
        left = f"{PLACE.folder}/COMMIT_LOG/left"
        storage.perform(Create(left, b"left"))
    assert stratamq("status", tier, "--output", "json") == 0
    captured = capsys.readouterr()
    (row,) = map(json.loads, captured.out.splitlines())
    assert (row["queues"], row["messages"], row["lost"]) == (1, 60, 0)
    assert (row["firstTimestamp"], row["lastTimestamp"]) == (TIME + 5_000, TIME + 5_590)
    assert "requests" in captured.err
    assert stratamq("gc", tier, "--older-than", "1m") == 1
    assert "at least 1h" in capsys.readouterr().err
    assert stratamq("gc", tier, "--output", "json") == 0
    assert capsys.readouterr().out == ""
    os.utime(tmp_path / "tier" / left, (1_000_000, 1_000_000))
    for words in (("--dry-run",), ()):
        assert stratamq("gc", tier, *words, "--output", "json") == 0
        (row,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert row["path"] == left
    assert not (tmp_path / "tier" / left).exists()
    assert stratamq("verify", tier, "--output", "json") == 0
    assert stratamq("status", tier, "--broker", "another") == 1


def test_a_bucket_is_listed_in_pages_and_what_is_left_in_it_goes(moto, monkeypatch):
    monkeypatch.setattr("stratamq.tier.reading.contents._PAGE", 7)
    storage = open_objects(moto.settings(f"s3://{moto.new_bucket()}/tiers"))
    ours = writer(storage, claimed(storage))
    fill(storage, ours)
    other = QueuePlace(*NAMES, "orders", 0)
    left = other.part(0, 0, (1, 1), "1-1")
    storage.perform(Create(left, b"left"))
    assert {place: len(one.unnamed) for place, one in garbage(storage).items()} == {
        PLACE: 0,
        other: 1,
    }
    collect_all(storage, run(claim_to_collect(*NAMES, take_over=True), storage))
    assert run(totals(*NAMES), storage).messages == 60
    assert check(storage, MODEL, 560) == 560
    storage.perform(Delete(left))


def test_a_directory_or_broker_that_is_not_there_is_named_and_nothing_is_made(tmp_path, capsys):
    nowhere = str(tmp_path / "nowhere")
    for command in ("gc", "verify", "status", "restore"):
        words = [str(tmp_path / "store")] if command == "restore" else []
        assert stratamq(command, nowhere, *words) == 1
        assert f"there is no directory {nowhere!r}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "tier").mkdir()
    assert stratamq("gc", str(tmp_path / "tier")) == 1
    assert "nothing of the broker DefaultCluster/broker-a" in capsys.readouterr().err


def test_a_store_is_restored_neither_into_the_tier_nor_into_another_store(tmp_path, capsys):
    tier, store = tmp_path / "tier", tmp_path / "store"
    tier.mkdir()
    (store / "commitlog").mkdir(parents=True)
    assert stratamq("restore", str(tier), str(tier / "store")) == 1
    assert "is in the tier itself" in capsys.readouterr().err
    assert stratamq("restore", str(tier), str(store / "below" / "deep")) == 1
    assert "is in the store" in capsys.readouterr().err
