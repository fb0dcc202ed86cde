"""The simulated disk as torture uses it: every call can be watched, stores into a mapping too.

A process can die between any two of its calls of the port, and between any two stores into a mapped
segment, which are no calls. `WatchedBytes` makes them calls: `store`, of which a crash leaves a
prefix (a copy that was interrupted), except that eight bytes or fewer are stored whole.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stratamq.files.port import Clock, Space
from stratamq.files.simulated import CrashChoice, SimulatedCrash, SimulatedDisk, SimulatedFiles
from stratamq.files.simulated_faults import Failure
from stratamq.files.simulated_inode import Inode

WHOLE_STORE_BYTES = 8
STORE = "store"
SYNCS = frozenset({"flush", "sync_directory"})
LOG = "commitlog"
PLENTY = 1 << 40
"""So much is no limit."""


class TortureDisk(SimulatedDisk):
    """`chance` decides whatever a crash or a partial failure leaves open."""

    def __init__(
        self, chance: random.Random, *, clock: Clock, capacity_bytes: int = PLENTY
    ) -> None:
        super().__init__(clock=clock, capacity_bytes=capacity_bytes)
        self.random = chance
        self.before_call: Callable[[str, str], None] | None = None
        """Called before each call with its operation and path. May raise."""
        self.hit: Counter[str] = Counter()
        """Planned failures that a process met, by the process's name."""
        self.synced: set[str] = set()
        """Processes that have synced something of the log."""
        self.stores_cut_off: Counter[str] = Counter()
        """Crash points met by a store: `copy`, or `publish` for the eight bytes that end one."""

    def count(self, process: SimulatedFiles, operation: str, path: str) -> Failure | None:
        if self.before_call is not None:
            self.before_call(operation, path)
        failure = super().count(process, operation, path)
        if operation in SYNCS and path.startswith(LOG):
            self.synced.add(process.name)
        if failure is not None and operation != STORE:
            self.hit[process.name] += 1
        return failure

    def space(self) -> Space:
        """Counted block by block only while there is a limit."""
        if self.capacity_bytes >= PLENTY:
            return Space(self.capacity_bytes, self.capacity_bytes)
        return super().space()

    def used_bytes(self) -> int:
        space = super().space()
        return space.total_bytes - space.available_bytes

    def under(self, directory: str) -> Iterator[Inode]:
        """The files that are seen below a directory."""
        for inode in self.tree.inodes(durable_too=False):
            if inode.path.startswith(f"{directory}/"):
                yield inode

    def forget_errors(self) -> None:
        """The kernel lets go of files whose write-back had failed before anybody asked."""
        for inode in self.tree.inodes():
            inode.pending_error = 0

    def twin(self, choice: CrashChoice, chance: random.Random, clock: Clock) -> "TortureDisk":
        """The disk as it would be after a crash now; this one runs on."""
        image = self.image(choice)
        twin = TortureDisk(chance, clock=clock, capacity_bytes=self.capacity_bytes)
        twin.tree = image.tree
        twin.calls = self.calls
        return twin


class WatchedBytes(np.ndarray):
    """A mapped segment whose stores count as calls of the process that maps it."""

    files: SimulatedFiles | None = None
    path: str = ""

    def __array_finalize__(self, parent: Any) -> None:
        self.files = getattr(parent, "files", None)
        self.path = getattr(parent, "path", "")

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.files is not None:
            try:
                # A failure that was planned for this number hits nothing: stores do not fail.
                self.files.count(STORE, self.path)
            except SimulatedCrash:
                whole = len(value) <= WHOLE_STORE_BYTES
                disk = self.files.disk
                assert isinstance(disk, TortureDisk)
                disk.stores_cut_off["publish" if whole else "copy"] += 1
                self._tear(key, value)
                raise
        super().__setitem__(key, value)

    def _tear(self, key: slice, value: Any) -> None:
        """A killed process had stored the beginning."""
        assert self.files is not None
        if len(value) > WHOLE_STORE_BYTES:
            done = self.files.disk.random.randrange(len(value))
            super().__setitem__(slice(key.start, key.start + done), value[:done])


def watched(raw: Any, files: SimulatedFiles, path: str) -> WatchedBytes:
    """The same bytes, their stores counted."""
    view: WatchedBytes = raw.view(WatchedBytes)
    view.files, view.path = files, path
    return view
