"""In the place of an unmounted directory nothing is written, and nothing counts as absent."""

import pytest

from stratamq.tier.driver.calls import AbsentError, Create, Load, StorageUnavailableError
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.same_directory import SameDirectory


class Mounted:
    """What is at a path: one directory after the other."""

    positions = True

    def __init__(self) -> None:
        self.directories = {(1, 2): MemoryStorage(positions=True)}
        self.identity = 1, 2

    def perform(self, call):
        return self.directories[self.identity].perform(call)

    def mount(self, identity, storage=None) -> None:
        self.identity = identity
        self.directories.setdefault(identity, storage or MemoryStorage(positions=True))

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def mounted():
    return Mounted()


@pytest.fixture
def storage(mounted):
    return SameDirectory(mounted, "tier", lambda: mounted.identity)


def test_before_an_object_was_met_any_directory_may_come(mounted, storage):
    with pytest.raises(AbsentError):
        storage.perform(Load("a"))
    mounted.mount((3, 4))
    storage.perform(Create("a", b""))
    assert storage.perform(Load("a"))


def test_in_another_directory_nothing_is_read_or_written_until_the_first_is_back(mounted, storage):
    storage.perform(Create("a", b"first"))
    mounted.mount((3, 4))
    for call in (Load("a"), Create("b", b"")):
        with pytest.raises(StorageUnavailableError, match="mounted"):
            storage.perform(call)
    mounted.mount((1, 2))
    assert storage.perform(Load("a"))[0] == b"first"
    with pytest.raises(AbsentError):
        storage.perform(Load("b"))


def test_a_directory_that_has_what_was_met_is_the_same_one_mounted_again(mounted, storage):
    storage.perform(Create("a", b"first"))
    mounted.mount((5, 2), mounted.directories[1, 2])
    assert storage.perform(Load("a"))[0] == b"first"
