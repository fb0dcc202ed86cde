"""A disk that does what disks, kernels and power do: the file port without a file system.

    disk = SimulatedDisk(seed=7)
    files = disk.files()        # one process; another call is another process
    ...
    disk.crash()                # power loss: all processes dead, what was not synced a lottery
    files = disk.files()        # the next boot

Processes on one disk share the page cache. `SimulatedFiles.kill` ends one of them and loses no
byte. Faults are planned with `fail`, `fail_at`, `crash_on` and `crash_at`; `calls` counts the calls
of the port, so that a test can let each in turn go wrong. Everything is a function of the seed and
the calls. Not thread-safe.
"""

import errno
import os
import random

from stratamq.files.port import Clock, EntryKind, Space
from stratamq.files.simulated_faults import (
    CrashChoice,
    CrashItem,
    Failure,
    Fault,
    PortCall,
    SimulatedCrash,
    keep_everything,
    keep_nothing,
    random_choice,
)
from stratamq.files.simulated_file import SimulatedFile, SimulatedLock
from stratamq.files.simulated_files import SimulatedFiles
from stratamq.files.simulated_inode import Inode
from stratamq.files.simulated_time import SimulatedClock, SimulatedScheduler, SimulatedWorker
from stratamq.files.simulated_tree import Change, Special, Tree

__all__ = [
    "CrashChoice",
    "CrashItem",
    "Fault",
    "PortCall",
    "SimulatedClock",
    "SimulatedCrash",
    "SimulatedDisk",
    "SimulatedFile",
    "SimulatedFiles",
    "SimulatedLock",
    "SimulatedScheduler",
    "SimulatedWorker",
    "keep_everything",
    "keep_nothing",
    "random_choice",
]

_PLENTY = 1 << 40


class SimulatedDisk:
    """One volume, its kernel's page cache, and the processes that use it."""

    def __init__(
        self, seed: int = 0, *, clock: Clock | None = None, capacity_bytes: int = _PLENTY
    ) -> None:
        self.random = random.Random(seed)
        self.clock: Clock = clock or SimulatedClock()
        self.capacity_bytes = capacity_bytes
        self.calls = 0
        """Calls of the port so far, by all processes. Never goes back, also not in a crash."""
        self.trace: list[PortCall] | None = None
        """Set it to a list to have every call recorded."""
        self.faults: list[Fault] = []
        self.tree = Tree(self.now_ns())
        self._mounts: dict[str, int] = {}
        """Mount points, and how many bytes the volume there holds."""
        self._faults_by_call: dict[int, int] = {}
        self._processes: list[SimulatedFiles] = []
        self._next_process = 1

    # --- processes ---

    def files(self, root: str = "", name: str = "") -> SimulatedFiles:
        """A new process that has `root` (a path on this disk) as its store directory."""
        process = SimulatedFiles(self, root, name or f"process-{self._next_process}")
        self._next_process += 1
        self._processes.append(process)
        return process

    def kill(self) -> None:
        """Kill every process. The page cache survives."""
        for process in list(self._processes):
            process.kill()

    def crash(self, choice: CrashChoice | random.Random | None = None) -> None:
        """Power loss: every process dies; of what was not synced, `choice` decides what survives.

        `choice` is asked once for each item of `crash_items`, in that order, so that a caller can
        enumerate all outcomes (of `image`, too); without one the disk's seed decides.
        """
        after = self.image(choice)
        self.kill()
        self.tree = after.tree

    def image(self, choice: CrashChoice | random.Random | None = None) -> "SimulatedDisk":
        """The disk as it would be after such a crash now, as a new disk; this one runs on."""
        if choice is None:
            choice = self.random
        choose = random_choice(choice) if isinstance(choice, random.Random) else choice
        twin = SimulatedDisk(clock=self.clock, capacity_bytes=self.capacity_bytes)
        twin.random.setstate(self.random.getstate())
        twin.calls = self.calls
        twin._mounts = dict(self._mounts)
        # All are asked first and in the order of `crash_items`, whatever the kept entries lead to.
        answers = {
            (id(owner), item.kind, item.page): choose(item) for owner, item in self._at_stake()
        }
        numbers = {id(change): index for index, change in enumerate(self.tree.pending)}

        def kept(owner: Inode | Change, kind: str, page: int = -1) -> bool | int:
            return answers.get((id(owner), kind, page), False)

        def carry(inode: Inode) -> Inode:
            return inode.after_crash(
                lambda page: kept(inode, "page", page),
                bool(kept(inode, "size")),
                bool(kept(inode, "mtime")),
            )

        twin.tree = self.tree.after_crash(
            lambda change: bool(kept(change, "entry", numbers[id(change)])), carry
        )
        return twin

    def crash_items(self) -> list[CrashItem]:
        """Everything that a crash now could keep or lose, in the order `crash` asks."""
        return [item for _, item in self._at_stake()]

    def _at_stake(self) -> list[tuple[Inode | Change, CrashItem]]:
        items: list[tuple[Inode | Change, CrashItem]] = [
            (change, CrashItem("entry", change.path, index))
            for index, change in enumerate(self.tree.pending)
        ]
        for inode in self._inodes_by_path():
            items += [(inode, CrashItem("page", inode.path, page)) for page in inode.dirty_pages()]
            if len(inode.durable) != inode.size:
                items.append((inode, CrashItem("size", inode.path)))
            if inode.durable_mtime_ns is not None:
                items.append((inode, CrashItem("mtime", inode.path)))
        return items

    # --- what the kernel does by itself ---

    def evict(self, chance: random.Random | None = None) -> list[tuple[str, int]]:
        """Drop clean pages, so that the disk's bytes show: which (path, page) changed by that.

        All of them, or with `chance` a random half. Live mappings change in place.
        """
        changed: list[tuple[str, int]] = []
        for inode in self._inodes_by_path():
            pages = inode.evict(lambda page: chance is None or chance.random() < 0.5)
            changed.extend((inode.path, page) for page in pages)
        return changed

    def write_back(self, chance: random.Random | None = None, error: int = 0) -> None:
        """Write dirty pages of all files in the background (all, or a random half).

        With `error` the writing fails: the pages are as after a failed flush, and the next flush of
        each such file reports it, once.
        """
        for inode in self._inodes_by_path():
            pages = [page for page in inode.dirty_pages() if not chance or chance.random() < 0.5]
            if not error:
                inode.flush(pages)
            elif pages:
                inode.fail_pages(pages)
                inode.pending_error = error

    # --- faults ---

    def fail(
        self,
        operation: str = "*",
        path: str = "*",
        nth: int = 1,
        error: int = errno.EIO,
        *,
        repeat: bool = False,
        partial: bool = False,
    ) -> Fault:
        """Let the `nth` call from now on that matches fail with `error`."""
        fault = Fault(operation, path, nth, error, repeat, partial)
        self.faults.append(fault)
        return fault

    def fail_at(self, call: int, error: int = errno.EIO) -> None:
        """Let the call that makes `calls` equal to `call` fail, whatever it is."""
        self._faults_by_call[call] = error

    def crash_on(self, operation: str = "*", path: str = "*", nth: int = 1) -> Fault:
        """Raise `SimulatedCrash` before the `nth` call from now on that matches."""
        return self.fail(operation, path, nth, 0)

    def crash_at(self, call: int) -> None:
        """Raise `SimulatedCrash` before the call that makes `calls` equal to `call`."""
        self._faults_by_call[call] = 0

    def clear_faults(self) -> None:
        self.faults.clear()
        self._faults_by_call.clear()

    def count(self, process: SimulatedFiles, operation: str, path: str) -> Failure | None:
        """Count one call; how it is to fail, if it is. May raise `SimulatedCrash`."""
        self.calls += 1
        if self.trace is not None:
            self.trace.append(PortCall(self.calls, operation, path, process.name))
        error = self._faults_by_call.get(self.calls)
        partial = False
        for fault in self.faults:
            if fault.applies(operation, path) and error is None:
                error, partial = fault.error, fault.partial
        if error is None:
            return None
        if error == 0:
            raise SimulatedCrash(f"call {self.calls}: {operation} {path}")
        return Failure(OSError(error, os.strerror(error), path), partial)

    # --- what tests look at and plant ---

    def contents(self, path: str) -> bytes:
        """What a reader of `path` sees."""
        return bytes(self._inode(path).cache)

    def durable_contents(self, path: str) -> bytes:
        """What the disk itself holds of the file that is now seen as `path`."""
        return bytes(self._inode(path).durable)

    def rot(self, path: str, position: int, data: bytes) -> None:
        """Damage bytes at rest."""
        self._inode(path).rot(position, data)

    def plant(self, path: str, kind: EntryKind) -> None:
        """Put a link or a device at `path`, durably, for a scan to find."""
        self.tree.set(path, Special(kind, self.now_ns()), self.now_ns())
        self.tree.sync_all()

    def mount(self, path: str, capacity_bytes: int = _PLENTY) -> None:
        """A volume of its own at a directory, which has the `lost+found` of its file system."""
        process = self.files()
        process.make_directory(f"{path}/lost+found")
        self._mounts[path] = capacity_bytes

    def mount_of(self, path: str) -> str:
        below = [at for at in self._mounts if path == at or path.startswith(f"{at}/")]
        return max(below, key=len, default="")

    def space(self, path: str = "") -> Space:
        """Blocks of every file that is seen under a name or held open, on that path's volume."""
        at = self.mount_of(path)
        holding = {id(inode): inode for inode in self.tree.inodes(durable_too=False)}
        for process in self._processes:
            holding.update((id(inode), inode) for inode in process.open_inodes())
        used = sum(
            inode.allocated_bytes()
            for inode in holding.values()
            if not self._mounts or self.mount_of(inode.path) == at
        )
        capacity = self._mounts.get(at, self.capacity_bytes)
        volume = sorted(self._mounts).index(at) + 1 if at else 0
        return Space(capacity, max(0, capacity - used), volume)

    def now_ns(self) -> int:
        return self.clock.wall_ms() * 1_000_000

    def forget(self, process: SimulatedFiles) -> None:
        if process in self._processes:
            self._processes.remove(process)

    def _inodes_by_path(self) -> list[Inode]:
        return sorted(self.tree.inodes(), key=lambda inode: inode.path)

    def _inode(self, path: str) -> Inode:
        node = self.tree.find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node
