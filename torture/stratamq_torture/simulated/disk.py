"""The simulated disk as torture uses it: every call can be watched, and a write be cut off.

A process can die between any two of its calls of the port, and within a write to a segment:
`WatchedFile` leaves a prefix of it, except that eight bytes or fewer are stored whole.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from stratamq.files.port import Clock, Space
from stratamq.files.simulated import CrashChoice, SimulatedCrash, SimulatedDisk, SimulatedFiles
from stratamq.files.simulated_faults import Failure
from stratamq.files.simulated_files import SimulatedFile
from stratamq.files.simulated_inode import Inode
from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq.formats.frame_layout import BLANK, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from stratamq_torture.trial import Violation

WHOLE_STORE_BYTES = 8
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
        if failure is not None:
            self.hit[process.name] += 1
        return failure

    def space(self, path: str = "") -> Space:
        """Counted block by block only while there is a limit."""
        if self.capacity_bytes >= PLENTY:
            return Space(self.capacity_bytes, self.capacity_bytes)
        return super().space(path)

    def used_bytes(self) -> int:
        space = super().space()
        return space.total_bytes - space.available_bytes

    # --- the log as its files show it, read without any code of the rooms ---

    def segments(self) -> list[int]:
        """Starts of the segments that are seen, in order."""
        node = self.tree.find(LOG)
        entries = getattr(node, "entries", {})
        return [start for name in sorted(entries) if (start := parse_offset_name(name)) is not None]

    def shown(self, base: int) -> memoryview:
        """What a reader of the segment at `base` sees now."""
        node = self.tree.find(f"{LOG}/{offset_name(base)}")
        if not isinstance(node, Inode):
            raise Violation("segment", f"the segment at {base} is not there")
        return memoryview(node.cache)

    def read(self, offset: int, size: int, segment_bytes: int) -> bytes:
        base = offset - offset % segment_bytes
        return bytes(self.shown(base)[offset - base : offset - base + size])

    def frames(self, start: int, end: int, segment_bytes: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of every frame in [start, end). Violation where the chain breaks."""
        position = start
        while position < end:
            frame, behind = self._frame_at(position, segment_bytes)
            if behind == position or (frame and behind > end):
                raise Violation("chain", f"no frame at {position}, the log ends at {end}")
            if frame:
                yield position, frame
            position = behind
        if position != end:
            raise Violation("chain", f"the last frame ends at {position}, the log at {end}")

    def readable(self, segment_bytes: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of every frame from the log's start up to the first place without one."""
        starts = self.segments()
        position = starts[0] if starts else 0
        while position - position % segment_bytes in starts:
            frame, behind = self._frame_at(position, segment_bytes)
            if behind == position:
                return
            if frame:
                yield position, frame
            position = behind

    def _frame_at(self, position: int, segment_bytes: int) -> tuple[bytes, int]:
        """The frame, and where it ends. No bytes: the blank at a segment's end, or, where it ends
        at `position`, nothing."""
        at = position % segment_bytes
        data = self.shown(position - at)
        size, magic = BLANK.unpack_from(data, at) if len(data) - at >= BLANK.size else (0, 0)
        if magic == MAGIC_BLANK and size == segment_bytes - at:
            return b"", position + size
        if magic in (MAGIC_V1, MAGIC_V2) and 0 < size <= len(data) - at:
            return bytes(data[at : at + size]), position + size
        return b"", position

    def under(self, directory: str) -> Iterator[Inode]:
        """The files that are seen below a directory."""
        for inode in self.tree.inodes(durable_too=False):
            if inode.path.startswith(f"{directory}/"):
                yield inode

    def forget_errors(self) -> None:
        """The kernel lets go of files whose write-back had failed before anyone asked."""
        for inode in self.tree.inodes():
            inode.pending_error = 0

    def twin(self, choice: CrashChoice, chance: random.Random, clock: Clock) -> "TortureDisk":
        """The disk as it would be after a crash now; this one runs on."""
        image = self.image(choice)
        twin = TortureDisk(chance, clock=clock, capacity_bytes=self.capacity_bytes)
        twin.tree = image.tree
        twin.calls = self.calls
        return twin


class WatchedFile:
    """A segment's file whose writes a crash may interrupt, eight bytes or fewer excepted."""

    def __init__(self, file: SimulatedFile, files: SimulatedFiles) -> None:
        self.files = files
        self._file = file

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        try:
            self._file.write(position, data)
        except SimulatedCrash:
            whole = len(data) <= WHOLE_STORE_BYTES
            disk = self.files.disk
            assert isinstance(disk, TortureDisk)
            disk.stores_cut_off["publish" if whole else "copy"] += 1
            if not whole:
                # A killed process had stored the beginning.
                done = disk.random.randrange(len(data))
                self._file.inode.write(position, memoryview(data)[:done])
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
