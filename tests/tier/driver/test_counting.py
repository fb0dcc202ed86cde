"""Requests, bytes, errors, times and prices are those of the calls."""

import pytest

from stratamq.errors import BusyError
from stratamq.files.simulated import SimulatedClock
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Create,
    Delete,
    Folders,
    List,
    Load,
    Read,
    Size,
    StorageUnavailableError,
    Swap,
    SwapLostError,
    Together,
    WriteAt,
)
from stratamq.tier.driver.counting import FREE, KINDS, CountingStorage, Counts, Prices
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.simulated import SimulatedBackend, StorageFault


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def storage(clock):
    return CountingStorage(MemoryStorage(positions=True), clock.monotonic_ns, Prices())


def test_calls_and_their_bytes_are_counted_by_kind(storage):
    storage.perform(Create("q/a", b"12345"))
    storage.perform(WriteAt("q/a", 5, b"678"))
    storage.perform(Read("q/a", 0, 4))
    _, version = storage.perform(Load("q/a"))
    storage.perform(Swap("q/a", b"x" * 100, version))
    storage.perform(Size("q/a"))
    storage.perform(Folders(""))
    storage.perform(Delete("q/a"))
    counts = storage.counts()
    assert {kind: counts[kind].requests for kind in counts} == dict.fromkeys(counts, 1) | {
        "list": 0
    }
    assert {kind: n.bytes_up for kind, n in counts.items() if n.bytes_up} == {
        "create": 5, "write_at": 3, "swap": 100,
    }  # fmt: skip
    assert {kind: n.bytes_down for kind, n in counts.items() if n.bytes_down} == {
        "read": 4, "load": 8,
    }  # fmt: skip


def test_every_kind_of_call_is_counted():
    assert set(KINDS.values()) == set(CountingStorage(MemoryStorage(), lambda: 0).counts())
    assert len(KINDS) == 9


def test_calls_together_are_counted_one_by_one(storage):
    storage.perform(Together((Size("a"), Size("b"))))
    assert storage.requests() == 2


@pytest.mark.parametrize(("objects", "requests"), [(0, 1), (1000, 1), (1001, 2)])
def test_a_listing_is_one_request_for_each_thousand(objects, requests):
    memory = MemoryStorage()
    for number in range(objects):
        memory.perform(Create(f"q/{number:05}", b""))
    storage = CountingStorage(memory, lambda: 0)
    storage.perform(List("q", limit=5000))
    assert storage.counts()["list"].requests == requests


def test_a_lost_race_and_an_absent_object_are_answers_and_no_errors(storage):
    storage.perform(Create("a", b"x"))
    with pytest.raises(AlreadyThereError):
        storage.perform(Create("a", b"y"))
    with pytest.raises(SwapLostError):
        storage.perform(Swap("a", b"y", None))
    with pytest.raises(AbsentError):
        storage.perform(Load("b"))
    counts = storage.counts()
    assert [counts[kind].lost for kind in ("create", "swap", "load")] == [1, 1, 0]
    assert sum(kind.errors for kind in counts.values()) == 0


@pytest.mark.parametrize(
    ("fault", "error"),
    [(StorageFault.LOST, StorageUnavailableError), (StorageFault.BUSY, BusyError)],
)
def test_errors_are_counted_with_their_requests(fault, error):
    backend = SimulatedBackend(1, positions=False)
    storage = CountingStorage(backend.storage(), lambda: 0)
    backend.fault_at(1, fault)
    with pytest.raises(error):
        storage.perform(Create("a", b"12"))
    assert storage.counts()["create"] == Counts(requests=1, errors=1, bytes_up=2)


def test_times_are_added_and_the_slowest_is_kept(clock):
    seen = []
    backend = SimulatedBackend(1, positions=False, pause_ms=clock.advance_ms)
    storage = CountingStorage(
        backend.storage(), clock.monotonic_ns, seen=lambda *values: seen.append(values)
    )
    for number in (1, 2):
        backend.fault_at(number, StorageFault.SLOW)
        storage.perform(Size("a"))
    storage.perform(Size("a"))
    took = [nanoseconds for _, nanoseconds, _ in seen]
    counts = storage.counts()["size"]
    assert counts.total_ns == sum(took) > 0
    assert counts.slowest_ns == max(took)
    assert [kind for kind, _, _ in seen] == ["size"] * 3


def test_requests_cost_what_their_kind_costs():
    storage = CountingStorage(MemoryStorage(), lambda: 0, Prices(put=5.0, get=0.4, list=50.0))
    for number in range(10):
        storage.perform(Create(f"q/{number}", b""))
    for _ in range(5):
        storage.perform(Size("q/1"))
    storage.perform(List("q"))
    storage.perform(Delete("q/1"))
    assert storage.cost_usd() == pytest.approx(10 * 0.005 + 5 * 0.0004 + 0.05)


def test_a_directory_costs_nothing(storage):
    free = CountingStorage(MemoryStorage(), lambda: 0, FREE)
    free.perform(Create("a", b""))
    assert free.cost_usd() == 0
