"""The simulated storage does what its faults are named for, and the same for the same seed."""

import pytest

from stratamq.errors import BusyError
from stratamq.files.simulated import SimulatedCrash
from stratamq.tier.driver.calls import (
    AbsentError,
    Create,
    Delete,
    List,
    Load,
    Read,
    Size,
    StorageUnavailableError,
    Swap,
    Together,
    WriteAt,
)
from stratamq.tier.driver.simulated import Odds, SimulatedBackend, StorageFault, When

DATA = bytes(range(1, 101))


@pytest.fixture
def backend():
    return SimulatedBackend(1, positions=True)


def content(backend, path="a"):
    return backend.memory.objects.get(path)


WRITES = [Create("a", DATA), Swap("a", DATA, None), WriteAt("a", 0, DATA)]


@pytest.mark.parametrize("call", WRITES)
def test_a_crash_before_a_call_has_done_nothing_and_one_after_it_has_done_all(backend, call):
    process = backend.storage()
    backend.crash_at(1, When.BEFORE)
    with pytest.raises(SimulatedCrash):
        process.perform(call)
    assert content(backend) is None
    process = backend.storage()
    backend.crash_at(2, When.AFTER)
    with pytest.raises(SimulatedCrash):
        process.perform(call)
    assert content(backend) == DATA


def test_a_dead_process_makes_no_call_and_the_next_one_finds_what_was_done(backend):
    process = backend.storage()
    backend.crash_at(1, When.AFTER)
    with pytest.raises(SimulatedCrash):
        process.perform(Create("a", DATA))
    with pytest.raises(SimulatedCrash):
        process.perform(Size("a"))
    assert backend.calls == 1
    assert backend.storage().perform(Size("a")) == 100


@pytest.mark.parametrize("call", WRITES[:2])
def test_inside_a_whole_object_is_there_or_not(call):
    seen = set()
    for seed in range(30):
        backend = SimulatedBackend(seed, positions=True)
        backend.crash_at(1, When.INSIDE)
        with pytest.raises(SimulatedCrash):
            backend.storage().perform(call)
        seen.add(content(backend))
    assert seen == {None, DATA}


@pytest.mark.parametrize("by_crash", [True, False])
def test_a_write_at_a_position_is_torn_anywhere_and_spoils_nothing_beside_it(by_crash):
    sizes, torn = set(), 0
    for seed in range(500):
        backend = SimulatedBackend(seed, positions=True)
        process = backend.storage()
        process.perform(WriteAt("a", 0, b"before"))
        if by_crash:
            backend.crash_at(2, When.INSIDE)
        else:
            backend.fault_at(2, StorageFault.PARTIAL)
        with pytest.raises((SimulatedCrash, StorageUnavailableError)):
            process.perform(WriteAt("a", 6, DATA))
        left = content(backend)
        assert left[:6] == b"before"
        assert all(byte in (0, DATA[index]) for index, byte in enumerate(left[6:]))
        sizes.add(len(left) - 6)
        torn += 0 in left[6:]
        backend.storage().perform(WriteAt("a", 6, DATA))
        assert content(backend) == b"before" + DATA
    assert min(sizes) == 0
    assert len(sizes) > 50
    assert torn


def test_a_crash_in_calls_together_may_find_any_of_them_done():
    seen = set()
    for seed in range(60):
        backend = SimulatedBackend(seed, positions=False)
        backend.crash_at(1 + seed % 4, When.BEFORE)
        calls = tuple(Create(name, DATA) for name in "abc")
        try:
            assert len(backend.storage().perform(Together(calls))) == 3
        except SimulatedCrash:
            assert len(backend.memory.objects) == seed % 4
        seen.add("".join(sorted(backend.memory.objects)))
    assert seen == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_results_and_errors_of_calls_together_are_in_their_order():
    for seed in range(20):
        storage = SimulatedBackend(seed, positions=False).storage()
        storage.perform(Together(tuple(Create(f"{size}", bytes(size)) for size in range(6))))
        sizes = storage.perform(Together(tuple(Size(f"{size}") for size in range(6))))
        assert sizes == list(range(6))
        with pytest.raises(AbsentError, match="first"):
            storage.perform(Together((Size("0"), Load("first"), Load("second"))))


def test_faults_are_done_or_not_as_they_are_named(backend):
    process = backend.storage()
    for number, (fault, error, done) in enumerate(
        [
            (StorageFault.FAIL, StorageUnavailableError, False),
            (StorageFault.BUSY, BusyError, False),
            (StorageFault.LOST, StorageUnavailableError, True),
        ]
    ):
        backend.fault_at(backend.calls + 1, fault)
        with pytest.raises(error):
            process.perform(Create(f"{number}", DATA))
        assert (content(backend, f"{number}") is not None) is done


def test_a_late_call_is_done_after_some_others(backend):
    process = backend.storage()
    backend.fault_at(1, StorageFault.LATE)
    with pytest.raises(StorageUnavailableError):
        process.perform(Create("a", DATA))
    assert content(backend) is None
    for _ in range(10):
        process.perform(Size("other"))
    assert content(backend) == DATA


def test_a_late_call_outlives_its_process_and_settling_ends_it(backend):
    process = backend.storage()
    backend.fault_at(1, StorageFault.LATE)
    backend.crash_at(2, When.BEFORE)
    for _ in range(2):
        with pytest.raises((StorageUnavailableError, SimulatedCrash)):
            process.perform(Create("a", DATA))
    backend.settle()
    assert content(backend) == DATA


def test_a_slow_call_is_done_after_its_pause():
    pauses = []
    backend = SimulatedBackend(1, positions=False, pause_ms=pauses.append)
    backend.fault_at(1, StorageFault.SLOW)
    backend.storage().perform(Create("a", DATA))
    assert len(pauses) == 1
    assert pauses[0] > 0


def test_a_stale_listing_lacks_what_is_new_or_has_what_is_gone_and_is_still_sorted():
    seen = set()
    for seed in range(60):
        backend = SimulatedBackend(seed, positions=False)
        process = backend.storage()
        for name in "abc":
            process.perform(Create(f"q/{name}", b"x"))
        process.perform(Delete("q/b"))
        backend.fault_at(5, StorageFault.STALE)
        names = [listed.path[2:] for listed in process.perform(List("q", limit=2))]
        assert names == sorted(names)
        assert len(names) <= 2
        seen.add("".join(names))
        assert [listed.path for listed in process.perform(List("q"))] == ["q/a", "q/c"]
    assert {"ac", "ab", "c"} <= seen


def test_the_same_seed_gives_the_same_run():
    def run_of(seed):
        odds = Odds(fail=0.2, lost=0.2, late=0.1, partial=0.2, busy=0.1)
        backend = SimulatedBackend(seed, positions=True, odds=odds)
        process = backend.storage()
        outcomes = []
        for number in range(60):
            for call in (WriteAt(f"{number % 5}", 0, DATA), Read(f"{number % 5}", 0, 1)):
                try:
                    outcomes.append(process.perform(call))
                except Exception as error:  # noqa: BLE001 - every outcome is compared
                    outcomes.append(repr(error))
        return outcomes, backend.memory.objects

    assert run_of(5) == run_of(5)
    assert run_of(5) != run_of(6)


def test_every_fault_has_its_odds_and_comes_about_as_often():
    for fault in StorageFault:
        backend = SimulatedBackend(3, positions=True, odds=Odds(**{fault.value: 0.5}))
        process = backend.storage()
        changed = 0
        for number in range(200):
            before = backend.memory.perform(List("", limit=1000))
            try:
                if fault is StorageFault.PARTIAL:
                    process.perform(WriteAt(f"{number}", 0, DATA))
                elif fault is StorageFault.STALE:
                    backend.memory.perform(Create(f"{number}", DATA))
                    backend.storage().perform(Create(f"{number}-", DATA))
                    changed += len(process.perform(List(""))) != len(before) + 2
                else:
                    process.perform(Create(f"{number}", DATA))
            except (StorageUnavailableError, BusyError):
                changed += 1
        if fault is not StorageFault.SLOW:
            assert 60 < changed < 140, fault


def test_a_planned_fault_that_cannot_befall_its_call_is_none(backend):
    backend.fault_at(1, StorageFault.PARTIAL)
    backend.storage().perform(Create("a", DATA))
    assert backend.memory.perform(Load("a"))[0] == DATA
