"""What a start finds in `index/`, and where it continues: a table of named cases.

    watermark   closed   files listed by it            case       continues
    none        –        none                          EMPTY      nothing is indexed
    none        –        some                          FOREIGN    adopts them (`adoption`)
    there       yes      all there, all as they were   CLOSED     at the watermark
    there       yes      changed, gone, or more        CHANGED    adopts what is there
    there       no       all there                     CRASHED    at the watermark, last file cut
    there       no       one is missing or damaged     DAMAGED    behind the files before that one
    there       any      listed, and none is there     LOST       nothing is indexed

EMPTY, LOST   The log is asked for everything from its minimum.
FOREIGN       RocketMQ's directory, or one whose watermark is lost. Its files are checked against
              the log as it is read from its minimum; what differs is rebuilt.
CLOSED        Slots and headers are on disk, unchanged since.
CHANGED       After our clean stop another program wrote here: RocketMQ, most likely. As FOREIGN.
CRASHED       Items above the watermark are cut away, chains computed again from the hash column.
              Files that the watermark does not list came after it: removed.
DAMAGED       As CRASHED, from the end of the last file that is whole.

The last message in the files may be read again, because it may have keys that are not in them; what
is in them is left out then (`RecoveredIndex.edge`).
"""

import enum
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Files
from stratamq.formats.index_layout import IndexHeader
from stratamq.formats.store_paths import INDEX, INDEX_GEOMETRY_PATH, TEMPORARY_DIRECTORY
from stratamq_index import geometry as geometries
from stratamq_index.directory import (
    ListedFile,
    entries,
    infer,
    is_index_name,
    look,
    move_aside,
    scan,
)
from stratamq_index.geometry import FileGeometry
from stratamq_index.index_file import (
    TEMPORARY_PREFIX,
    EdgeKeys,
    IndexFileReader,
    WritableIndexFile,
    path_of,
    rewrite,
)
from stratamq_index.replay import Replayed, replay, run
from stratamq_index.series import OpenFile
from stratamq_index.watermark import FileRecord, Watermark
from stratamq_index.writer import Writer


class StartCase(enum.Enum):
    EMPTY = "nothing is there"
    FOREIGN = "files without a watermark of ours"
    CLOSED = "closed cleanly, and not touched since"
    CHANGED = "changed by another program after a clean stop"
    CRASHED = "not closed; the files are there"
    DAMAGED = "not closed; a file is missing or damaged"
    LOST = "the files of the watermark are gone"


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """All that decides. `intact`: how many of the listed files, from the oldest on, are right.

    `exact`: nothing but the listed files is there, and their headers are the listed ones.
    """

    watermark: bool
    closed: bool
    listed: int
    intact: int
    present: int
    exact: bool


def decide(facts: DirectoryFacts) -> StartCase:
    if not facts.watermark:
        return StartCase.FOREIGN if facts.present else StartCase.EMPTY
    if not facts.present:
        return (
            StartCase.LOST
            if facts.listed
            else (StartCase.CLOSED if facts.closed else StartCase.CRASHED)
        )
    if facts.closed:
        exact = facts.exact and facts.intact == facts.listed
        return StartCase.CLOSED if exact else StartCase.CHANGED
    return StartCase.CRASHED if facts.intact == facts.listed else StartCase.DAMAGED


@dataclass(slots=True)
class RecoveredIndex:
    """Where to go on. `adopt`: the files that are to be checked against the log first."""

    case: StartCase
    generation: int = 0
    position: int = 0
    sealed: list[FileRecord] = field(default_factory=list)
    current: OpenFile | None = None
    edge: EdgeKeys | None = None
    adopt: list[ListedFile] = field(default_factory=list)


def recover(
    files: Files, geometry: FileGeometry, watermark: Watermark | None, report: list[str]
) -> RecoveredIndex:
    """Bring `index/` to the state in the watermark, durably; a line in `report` for each
    thing that was not as it should be. Running it again changes nothing more."""
    found = scan(files, geometry, report)
    if watermark is None:
        case = StartCase.FOREIGN if found else StartCase.EMPTY
        return RecoveredIndex(case, adopt=found)
    by_name = {each.name: each for each in found}
    current = _Current(files, geometry, watermark, by_name)
    facts = DirectoryFacts(
        watermark=True,
        closed=watermark.closed,
        listed=len(watermark.files),
        intact=_count_intact(watermark, by_name, geometry, current),
        present=len(found),
        exact=[each.name for each in found] == [record.name for record in watermark.files]
        and all(by_name[record.name].header == record.header for record in watermark.files),
    )
    case = decide(facts)
    if case is StartCase.CHANGED:
        report.append("index/ was changed by another program since our clean stop")
        return RecoveredIndex(case, adopt=found)
    if case is StartCase.LOST:
        report.append("the index files are gone: everything is indexed again")
        return RecoveredIndex(case)
    kept = list(watermark.files[: facts.intact])
    _remove(files, [each.name for each in found], kept, report)
    recovered = RecoveredIndex(case, watermark.generation, watermark.position)
    recovered.edge = edge_of(files, geometry, kept)
    if case is StartCase.DAMAGED:
        report.append(
            f"index/{watermark.files[facts.intact].name} is missing or damaged: it and what "
            "follows is indexed again"
        )
        recovered.position = recovered.edge.physical_offset if recovered.edge else 0
        if recovered.edge is None:
            recovered.generation = 0
    elif kept and kept[-1].header.next_item < geometry.items:
        record = kept.pop()
        recovered.current = current.open(kept[-1].header if kept else None, report)
        assert recovered.current is not None, record
    recovered.sealed = kept
    return recovered


class _Current:
    """The watermark's last file, when it is not full: its items and what becomes of them."""

    def __init__(
        self,
        files: Files,
        geometry: FileGeometry,
        watermark: Watermark,
        found: dict[str, ListedFile],
    ) -> None:
        self._files = files
        self._geometry = geometry
        self._record: FileRecord | None = None
        self._replayed: Replayed | None = None
        record = watermark.files[-1] if watermark.files else None
        if record is None or record.name not in found:
            return
        if record.header.next_item < geometry.items:
            self._record = record
            with closing(IndexFileReader.open(files, path_of(record.name), geometry)) as reader:
                self._replayed = run(replay(reader, geometry, record.header))

    @property
    def intact(self) -> bool:
        replayed = self._replayed
        return replayed is not None and replayed.readable and replayed.chained

    def open(self, before: IndexHeader | None, report: list[str]) -> OpenFile | None:
        """Nothing behind the watermark's items is left in it."""
        record, replayed = self._record, self._replayed
        if record is None or replayed is None:
            return None
        path = path_of(record.name)
        end = record.header.next_item
        with closing(IndexFileReader.open(self._files, path, self._geometry)) as reader:
            clean = reader.is_zero_from(end)
        table = replayed.state.table.copy()
        if clean:
            disk = WritableIndexFile(self._files.open(path, writable=True), self._geometry, table)
        else:
            report.append(f"{path}: items from number {end} on were not durable, and are cut")
            disk = rewrite(self._files, path, self._geometry, end, record.header, table)
        return OpenFile(record.name, replayed.state, before, written=end, disk=disk)


def _count_intact(
    watermark: Watermark, found: dict[str, ListedFile], geometry: FileGeometry, current: _Current
) -> int:
    for number, record in enumerate(watermark.files):
        on_disk = found.get(record.name)
        full = record.header.next_item >= geometry.items
        last = number == len(watermark.files) - 1
        if on_disk is None:
            return number
        if last and not full:
            if not current.intact:
                return number
        elif on_disk.header != record.header:
            return number
    return len(watermark.files)


def _remove(
    files: Files, present: Sequence[str], kept: Sequence[FileRecord], report: list[str]
) -> None:
    """Files behind the watermark can be built again from the log, and will be."""
    names = {record.name for record in kept}
    surplus = [name for name in present if name not in names]
    for name in surplus:
        files.unlink(path_of(name))
    if surplus:
        files.sync_directory(INDEX)
        report.append(f"{len(surplus)} index files above the watermark are indexed again")


def edge_of(files: Files, geometry: FileGeometry, kept: Sequence[FileRecord]) -> EdgeKeys | None:
    """The last message in these files, with its keys that are there."""
    if not kept:
        return None
    with closing(IndexFileReader.open(files, path_of(kept[-1].name), geometry)) as reader:
        return reader.tail_keys(kept[-1].header.next_item)


def open_directory(
    files: Files, slots: int | None, items: int | None, writer: Writer, report: list[str]
) -> tuple[FileGeometry, RecoveredIndex]:
    """`slots` and `items` are the settings. What fits no geometry goes aside."""
    for entry in files.list(TEMPORARY_DIRECTORY):
        if entry.name.startswith(TEMPORARY_PREFIX):
            files.unlink(f"{TEMPORARY_DIRECTORY}/{entry.name}")
    geometry = _choose_geometry(files, slots, items, report)
    watermark, faults = writer.load()
    report += faults
    return geometry, recover(files, geometry, watermark, report)


def _choose_geometry(
    files: Files, slots: int | None, items: int | None, report: list[str]
) -> FileGeometry:
    """Recorded, so that the next start needs no setting."""
    file = MetadataFile(files, INDEX_GEOMETRY_PATH)
    data = file.load() or {}
    report += file.found.faults
    recorded = None
    before = data.get("index_slots"), data.get("index_items")
    if isinstance(before[0], int) and isinstance(before[1], int):
        recorded = FileGeometry(before[0], before[1])
    present = [entry for entry in entries(files, report) if is_index_name(entry)]
    choice = geometries.choose(
        slots,
        items,
        recorded if recorded and recorded.is_possible else None,
        (lambda geometry: look(files, present, geometry)) if present else None,
        lambda: infer(files, present),
    )
    report += choice.report
    if not choice.fits:
        for entry in present:
            move_aside(files, path_of(entry.name))
        files.sync_directory(INDEX)
    if choice.geometry != recorded:
        file.store({"index_slots": choice.geometry.slots, "index_items": choice.geometry.items})
    return choice.geometry
