"""A directory that is unmounted while it is used leaves an empty one in its place: nothing is
written there, and nothing there counts as absent from the tier.
"""

import os
from collections.abc import Callable
from typing import TypeVar

from stratamq.tier.driver.calls import (
    Create,
    Load,
    Size,
    StorageCall,
    StorageUnavailableError,
    Swap,
    WriteAt,
)
from stratamq.tier.driver.storage import Storage, StorageOver

T = TypeVar("T")
Identity = tuple[int, int]


def identity_of(path: str) -> Identity | None:
    """Device and inode of a directory; None: there is none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


class SameDirectory(StorageOver):
    """`Storage` over one of a directory. Each call is made as long as `identity` gives what it gave
    when an object was met first; another directory counts as the same one where that object is
    there. StorageUnavailableError in any other one. Thread-safe."""

    def __init__(
        self, storage: Storage, name: str, identity: Callable[[], Identity | None]
    ) -> None:
        super().__init__(storage)
        self._name = name
        self._identity = identity
        self._known: Identity | None = None
        self._met = ""

    def _perform(self, call: StorageCall[T]) -> T:
        if self._met:
            self._require_same()
        result = self._storage.perform(call)
        if not self._met and isinstance(call, Load | Create | Swap | WriteAt):
            self._known, self._met = self._identity(), call.path
        return result

    def _require_same(self) -> None:
        found = self._identity()
        if found == self._known:
            return
        if found is None or self._storage.perform(Size(self._met)) is None:
            raise StorageUnavailableError(
                f"{self._name} is not the directory that it was, and has no {self._met}: is it "
                "mounted?"
            )
        self._known = found
