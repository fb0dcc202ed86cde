"""The index in memory: sealed files, files that are still written, and how far each has come.

    sealed   full and on disk, known by name and header
    open     has items that are not on disk yet; the last one takes the next key
    step     applying has come to a log offset, when the last open file had this header

Items wait in memory until the log has flushed their step (`FlushedSteps`), so that no file ever
holds anything above *flushed*. `plan` makes a `WriteJob` of what may go out; one job runs at a
time, in the write lane; `finish` takes note of it. A job that failed changed nothing here and may
be planned again: it writes the same bytes to the same places.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stratamq.files.port import Files
from stratamq.follow.flushed_steps import AppliedStep, FlushedSteps
from stratamq.formats.file_names import next_index_name
from stratamq.formats.index_columns import IndexItems, IndexKeys, IndexState, put_keys
from stratamq.formats.index_layout import IndexHeader
from stratamq_index.geometry import FileGeometry
from stratamq_index.index_file import EdgeKeys, SyncError, WritableIndexFile
from stratamq_index.watermark import FileRecord

Waiting = tuple[NDArray[np.void], NDArray[np.int64]]
"""Items and their numbers."""


@dataclass(slots=True, eq=False)
class OpenFile:
    """`written` is the number behind the last item on disk; `blocks` holds all items from there on.

    `disk` is the write lane's: None until the first job made the file. `before` is the header of
    the file before this one, if there is one.
    """

    name: str
    state: IndexState
    before: IndexHeader | None
    blocks: deque[IndexItems] = field(default_factory=deque)
    written: int = 1
    disk: WritableIndexFile | None = None
    unsure: bool = False
    """A job was begun that has not been finished: items from `written` on may be on disk."""

    def record(self) -> FileRecord:
        return FileRecord(self.name, self.state.header())

    def head_keys(self) -> EdgeKeys:
        """The first message of a file that is all in memory. Its keys came in one block."""
        records = self.blocks[0].records
        return EdgeKeys.of(records[records["physical_offset"] == records["physical_offset"][0]])

    def disk_table(self) -> NDArray[np.int32]:
        """The slot table as it is without the items in memory."""
        table = self.state.table.copy()
        for block in reversed(self.blocks):
            table[block.slot[::-1]] = block.previous[::-1]
        return table

    def find(self, key_hash: int) -> tuple[list[Waiting], int]:
        """Items with this hash that wait in memory, newest first, and where the chain continues:
        the number of an item on disk, or 0."""
        slot = key_hash % self.state.slots
        following = int(self.state.table[slot])
        found: list[Waiting] = []
        for block in reversed(self.blocks):
            rows = np.flatnonzero(block.slot == slot)
            if len(rows):
                following = int(block.previous[rows[0]])
                rows = rows[block.key_hash[rows] == key_hash]
                rows = rows[::-1]
                found.append((block.records[rows], rows + block.first_number))
        return found, following


Tail = tuple[OpenFile, IndexHeader] | None
"""The last open file and its header at a step: everything below the step is in the items that the
header counts and in the files before. None: all was sealed."""


@dataclass(slots=True, eq=False)
class FileWrite:
    """What a job does to one file. `slots`: write slots and this header, too."""

    file: OpenFile
    disk: WritableIndexFile | None
    blocks: list[IndexItems]
    header: IndexHeader
    slots: bool
    seal: bool


class WriteJob:
    """Runs in the write lane, and touches nothing but the disk. OSError leaves it to be repeated.

    `SyncError` must not be repeated: the pages are clean now, and not on disk.
    """

    def __init__(
        self,
        files: Files,
        prefix: str,
        geometry: FileGeometry,
        parts: Sequence[FileWrite],
        step: AppliedStep[Tail],
        records: tuple[FileRecord, ...],
    ) -> None:
        """`prefix` and a file's name make its path. `records`: the files as they are on disk once
        the job has run."""
        self.parts = parts
        self.step = step
        self.records = records
        self._files = files
        self._prefix = prefix
        self._geometry = geometry

    def run(self) -> list[WritableIndexFile]:
        """Each part's file, open still: what names them may yet fail. All synced."""
        disks = []
        made = []
        try:
            for part in self.parts:
                disk = part.disk
                if disk is None:
                    disk = self._create(part)
                    made.append(disk)
                for block in part.blocks:
                    disk.append(block)
                if part.slots or part.seal:
                    disk.write_slots(part.header)
                disk.sync()
                disks.append(disk)
        except (OSError, SyncError):
            for disk in made:
                disk.close()
            raise
        return disks

    def _create(self, part: FileWrite) -> WritableIndexFile:
        path = f"{self._prefix}{part.file.name}"
        empty = IndexState(1, 2, part.file.before).header()
        return WritableIndexFile.create(self._files, path, self._geometry, empty)


class FileSeries:
    """All files of one index, or of a part of it that is being rebuilt. Belongs to the engine."""

    def __init__(
        self,
        geometry: FileGeometry,
        position: int,
        sealed: Sequence[FileRecord] = (),
        names: Sequence[str] = (),
        before_name: str | None = None,
    ) -> None:
        """`names` are used up first; then files are named by their first message's store time, or
        earlier if there is room for it only in front of `before_name`."""
        self.geometry = geometry
        self.position = position
        self.sealed = list(sealed)
        self.open: list[OpenFile] = []
        self.pending_items = 0
        """Items in memory that no finished job has written."""
        self._names = deque(names)
        self._before_name = before_name
        self._steps: FlushedSteps[Tail] = FlushedSteps(position, None)
        self._before: IndexHeader | None = None

    @property
    def last_header(self) -> IndexHeader | None:
        """Belongs to the newest file, as it stands in memory."""
        if self.open:
            return self.open[-1].state.header()
        return self.sealed[-1].header if self.sealed else self._before

    @property
    def last_name(self) -> str | None:
        if self.open:
            return self.open[-1].name
        return self.sealed[-1].name if self.sealed else None

    @property
    def sealed_ms(self) -> int:
        """Store time up to which files are full and synced."""
        return self.sealed[-1].header.end_timestamp_ms if self.sealed else 0

    def records(self) -> list[FileRecord]:
        """Every file, oldest first, with its header in memory."""
        return [*self.sealed, *(file.record() for file in self.open)]

    def follow(self, before: IndexHeader | None) -> None:
        """Set which file comes before the first of this series (for one that is rebuilt)."""
        self._before = before

    def resume(self, file: OpenFile) -> None:
        """Go on in a file all of whose items are on disk already."""
        self.open.append(file)
        self._steps = FlushedSteps(self.position, (file, file.state.header()))

    def put(self, keys: IndexKeys) -> None:
        """Index these keys, rolling to new files as needed."""
        if not len(keys):
            return
        if self.open:
            state = self.open[-1].state
        else:
            state = IndexState(self.geometry.slots, self.geometry.items, self.last_header)
        for state_of_part, items in put_keys(state, keys):
            if not self.open or self.open[-1].state is not state_of_part:
                before = self.last_header
                name = self._next_name(state_of_part.begin_timestamp_ms)
                self.open.append(OpenFile(name, state_of_part, before))
            self.open[-1].blocks.append(items)
            self.pending_items += len(items)

    def mark(self, position: int) -> None:
        """All keys of the log below `position` have been put."""
        self.position = position
        self._steps.applied(position, self._tail())

    def plan(
        self,
        flushed: int,
        files: Files,
        prefix: str,
        *,
        force: bool = False,
        slots: bool = False,
    ) -> WriteJob | None:
        """What the log's *flushed* allows to be written; None when nothing is new.

        With `force` there always is a job; with `slots`, too, and the last file's slot table and
        header go out as well.
        """
        if not (self.has_changes(flushed) or force or slots):
            return None
        step = self._steps.covered
        parts = []
        records = list(self.sealed)
        for file, header in self._through(step):
            records.append(FileRecord(file.name, header))
            seal = header.next_item >= self.geometry.items
            blocks = [block for block in file.blocks if block.end_number <= header.next_item]
            if blocks or seal or slots:
                file.unsure = True
                parts.append(FileWrite(file, file.disk, blocks, header, slots or seal, seal))
        return WriteJob(files, prefix, self.geometry, parts, step, tuple(records))

    def finish(self, job: WriteJob, disks: Sequence[WritableIndexFile]) -> list[WritableIndexFile]:
        """The job ran: forget what is on disk now. The write lane is to close what comes out."""
        sealed = []
        for part, disk in zip(job.parts, disks, strict=True):
            file = part.file
            file.disk = disk
            file.unsure = False
            for block in part.blocks:
                assert file.blocks[0] is block
                file.blocks.popleft()
                file.written = block.end_number
                self.pending_items -= len(block)
            if part.seal:
                assert self.open[0] is file
                self.open.pop(0)
                self.sealed.append(FileRecord(file.name, part.header))
                sealed.append(disk)
        self._steps.written = job.step
        return sealed

    def has_changes(self, flushed: int) -> bool:
        """Whether there is something to write that *flushed* allows."""
        self._steps.flushed(flushed)
        return self._steps.has_changes

    def written(self) -> tuple[int, tuple[FileRecord, ...]]:
        """What is on disk: up to which position, and the files with their headers."""
        step = self._steps.written
        last = [FileRecord(file.name, header) for file, header in self._through(step)]
        return step.position, (*self.sealed, *last)

    def _tail(self) -> Tail:
        return (self.open[-1], self.open[-1].state.header()) if self.open else None

    def _through(self, step: AppliedStep[Tail]) -> list[tuple[OpenFile, IndexHeader]]:
        """The open files up to the step's, each with its header at the step.

        None when the step's own file was sealed since: all that is open came after it.
        """
        if step.value is None or step.value[0] not in self.open:
            return []
        before = self.open[: self.open.index(step.value[0])]
        return [*((file, file.state.header()) for file in before), step.value]

    def disk_header(self, file: OpenFile) -> IndexHeader:
        """The header that goes with the items of `file` that are on disk."""
        written = self._steps.written.value
        if file.blocks and written is not None and written[0] is file:
            return written[1]
        return file.state.header()

    def rewind(self) -> None:
        """The series was cut to the present position."""
        self._steps.rewind(self.position, self._tail())

    def drop_sealed(self, count: int) -> list[FileRecord]:
        """Take the oldest files out of the series."""
        dropped, self.sealed = self.sealed[:count], self.sealed[count:]
        return dropped

    def _next_name(self, first_timestamp_ms: int) -> str:
        if self._names:
            return self._names.popleft()
        name = next_index_name(first_timestamp_ms, self.last_name)
        if self._before_name is not None and name >= self._before_name:
            name = next_index_name(0, self.last_name)
        return name
