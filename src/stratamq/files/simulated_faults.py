"""What goes wrong on the simulated disk, and when: faults planned by call, operation and path."""

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from stratamq.files.simulated_inode import SECTORS_PER_PAGE


class SimulatedCrash(BaseException):
    """The process stopped at this call. It makes no further calls; see `SimulatedDisk`.

    Not an `Exception`: code that handles errors must not outlive its own process.
    """


class PortCall(NamedTuple):
    """One call of the port, as counted."""

    number: int
    operation: str
    path: str
    process: str


@dataclass(slots=True)
class Fault:
    """Fail, or crash before, the `nth` matching call; `repeat` means every one from there on.

    `operation` and `path` are patterns of `fnmatch`. `error` is an errno; 0 is a crash. `partial`
    lets a failing flush make a seeded part of its pages durable all the same.
    """

    operation: str = "*"
    path: str = "*"
    nth: int = 1
    error: int = errno.EIO
    repeat: bool = False
    partial: bool = False
    met: int = field(default=0, init=False)

    def applies(self, operation: str, path: str) -> bool:
        """Count this call, if it matches; True if it is to fail."""
        if not (fnmatchcase(operation, self.operation) and fnmatchcase(path, self.path)):
            return False
        self.met += 1
        return self.met == self.nth or (self.repeat and self.met > self.nth)


class Failure(NamedTuple):
    """How one call is to fail."""

    error: OSError
    partial: bool


class CrashItem(NamedTuple):
    """One thing that a crash keeps or loses.

    kind     keep means
    page     the dirty page `page` of `path` reached the disk, or the sectors of a mask did
    size     the un-synced size of `path` did
    mtime    the un-synced modification time of `path` did
    entry    the un-synced change number `page` of directory entries (create, rename, unlink) did
    """

    kind: str
    path: str
    page: int = -1


CrashChoice = Callable[[CrashItem], bool | int]


def keep_nothing(item: CrashItem) -> bool:
    """The worst crash for what was not synced: all of it is gone."""
    return False


def keep_everything(item: CrashItem) -> bool:
    """The crash that loses nothing, as if the kernel had just written everything back."""
    return True


def random_choice(chance: random.Random) -> CrashChoice:
    """A seeded crash: of one character (all lost … all kept), sometimes with torn pages."""
    kept_of_8 = chance.choice((0, 1, 4, 4, 4, 7, 8))
    torn_of_8 = chance.choice((0, 0, 1, 4))

    def choose(item: CrashItem) -> bool | int:
        if item.kind == "page" and chance.randrange(8) < torn_of_8:
            return chance.getrandbits(SECTORS_PER_PAGE)
        return chance.randrange(8) < kept_of_8

    return choose
