"""Asking again: what is repeated, after which pauses, and whose object a refused write met."""

import random

import pytest

from stratamq.errors import BusyError
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Create,
    Delete,
    List,
    Load,
    Read,
    Size,
    StorageUnavailableError,
    Swap,
    SwapLostError,
    WriteAt,
)
from stratamq.tier.driver.retrying import Retries, RetryingStorage
from stratamq.tier.driver.simulated import Odds, SimulatedBackend, StorageFault

RETRIES = Retries(attempts=4, first_pause_ms=100, longest_pause_ms=300)


class Place:
    """A backend, a storage that asks again, and the pauses that it made."""

    def __init__(self, positions=False, seed=1, odds=None, retries=RETRIES):
        self.backend = SimulatedBackend(seed, positions=positions, odds=odds)
        self.pauses = []
        self.storage = RetryingStorage(
            self.backend.storage(), retries, self.pauses.append, chance=lambda: 0.0
        )

    def next(self, *faults):
        for number, fault in enumerate(faults, 1):
            self.backend.fault_at(self.backend.calls + number, fault)


@pytest.fixture
def place():
    return Place()


@pytest.mark.parametrize("fault", [StorageFault.FAIL, StorageFault.LOST, StorageFault.BUSY])
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (Read("a", 1, 2), b"bc"),
        (Size("a"), 3),
        (Delete("a"), None),
        (WriteAt("a", 3, b"de"), None),
        (List("absent"), []),
    ],
)
def test_a_call_that_changes_nothing_by_repetition_is_repeated(fault, call, expected):
    place = Place(positions=True)
    place.storage.perform(Create("a", b"abc"))
    place.next(fault, fault)
    assert place.storage.perform(call) == expected
    assert len(place.pauses) == 2


def test_the_last_error_is_raised_when_the_attempts_are_used_up(place):
    place.next(*[StorageFault.FAIL] * 4)
    with pytest.raises(StorageUnavailableError):
        place.storage.perform(Size("a"))
    assert place.backend.calls == 4
    place.next(*[StorageFault.BUSY] * 4)
    with pytest.raises(BusyError):
        place.storage.perform(Size("a"))
    assert place.storage.perform(Size("a")) is None


def test_who_gives_up_is_given_the_next_error(place):
    place.storage.give_up()
    for fault, error in (
        (StorageFault.FAIL, StorageUnavailableError),
        (StorageFault.BUSY, BusyError),
    ):
        place.next(fault)
        with pytest.raises(error):
            place.storage.perform(Size("a"))
    assert place.pauses == []


def test_the_pauses_double_up_to_the_longest_with_jitter():
    assert [RETRIES.pause_ms(failed, 0.0) for failed in (1, 2, 3, 9)] == [50, 100, 150, 150]
    assert RETRIES.pause_ms(1, 0.999) == pytest.approx(100, abs=0.1)


def test_a_busy_storage_chooses_the_pause_up_to_the_longest():
    place = Place(seed=3)
    place.next(StorageFault.BUSY)
    place.storage.perform(Size("a"))
    assert 0.05 <= place.pauses[0] <= 0.3


@pytest.mark.parametrize("call", [Create("a", b"mine"), Swap("a", b"mine", None)])
def test_a_write_that_lost_its_answer_knows_its_own_object(place, call):
    place.next(StorageFault.LOST)
    version = place.storage.perform(call)
    assert place.backend.memory.perform(Load("a")) == (b"mine", version)


@pytest.mark.parametrize("call", [Create("a", b"mine"), Swap("a", b"mine", None)])
def test_a_write_that_failed_before_it_was_done_is_done_once(place, call):
    place.next(StorageFault.FAIL)
    version = place.storage.perform(call)
    assert place.storage.perform(Load("a")) == (b"mine", version)


@pytest.mark.parametrize("content", [b"others", b"longer than mine"])
def test_another_writers_object_is_not_taken_for_its_own(place, content):
    place.backend.memory.perform(Create("a", content))
    place.next(StorageFault.FAIL)
    with pytest.raises(AlreadyThereError) as raised:
        place.storage.perform(Create("a", b"mine.."))
    assert raised.value.fields["perhaps_done"] is True


def test_an_object_of_equal_content_is_another_ones_where_no_outcome_was_open(place):
    place.backend.memory.perform(Create("a", b"mine"))
    with pytest.raises(AlreadyThereError) as raised:
        place.storage.perform(Create("a", b"mine"))
    assert "perhaps_done" not in raised.value.fields


def test_a_lost_swap_that_arrives_late_is_known_or_refused(place):
    """However late the first attempt is done, the content is that of the swap."""
    for seed in range(50):
        place = Place(seed=seed, retries=Retries(attempts=12))
        version = place.storage.perform(Create("a", b"one"))
        place.next(StorageFault.LATE, StorageFault.FAIL, StorageFault.FAIL)
        swapped = place.storage.perform(Swap("a", b"two", version))
        place.backend.settle()
        assert place.storage.perform(Load("a")) == (b"two", swapped)


def append(storage, token):
    """As a writer of manifests does: what is lost is looked for before it is tried again."""
    while True:
        try:
            data, version = storage.perform(Load("log"))
            if token in data.split():
                return
            storage.perform(Swap("log", data + token + b" ", version))
            return
        except (SwapLostError, StorageUnavailableError, BusyError):
            continue


ODDS = Odds(fail=0.1, busy=0.05, lost=0.15, late=0.15)


@pytest.mark.parametrize("seeds", [range(60), range(60, 120)], ids=str)
def test_two_writers_over_a_bad_network_lose_and_double_nothing(seeds):
    for seed in seeds:
        place = Place(seed=seed)
        place.storage.perform(Create("log", b""))
        place.backend.odds = ODDS
        other = RetryingStorage(place.backend.storage(), RETRIES, place.pauses.append, lambda: 0.5)
        chance = random.Random(seed)
        tokens = []
        for number in range(15):
            token = b"%d" % number
            append(chance.choice([place.storage, other]), token)
            tokens.append(token)
        place.backend.settle()
        assert place.storage.perform(Load("log"))[0].split() == tokens, seed


def test_an_absent_object_is_an_answer_and_not_asked_for_again(place):
    with pytest.raises(AbsentError):
        place.storage.perform(Load("a"))
    assert place.backend.calls == 1
