"""The content of `index/`: the files that can be index files, and everything else put aside.

RocketMQ reads whatever stands there, so nothing that is no index file may stay. What is put aside
is renamed to `stratamq/aside/index/`, reported, and not read again: the log can build it again.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from stratamq.errors import StoreRefusedError
from stratamq.files.paths import base_name, parent
from stratamq.files.port import Entry, EntryKind, File, Files
from stratamq.formats.file_names import parse_index_name
from stratamq.formats.index_layout import (
    INDEX_HEADER_BYTES,
    INDEX_ITEM_BYTES,
    INDEX_SLOT_BYTES,
    IndexHeader,
    decode_index_header,
)
from stratamq.formats.store_paths import ASIDE_DIRECTORY, INDEX
from stratamq_index.geometry import FileGeometry, Fit
from stratamq_index.index_file import IndexFileReader, path_of

ASIDE = f"{ASIDE_DIRECTORY}/{INDEX}"
_PIECE_BYTES = 1 << 20
_OFFSET_IN_ITEM = 4
"""Behind the key's hash."""
_LOOK_AT_FILES = 8
"""The newest so many decide about the geometry."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of the right name and length. `header` None: it contradicts itself."""

    name: str
    header: IndexHeader | None


def entries(files: Files, report: list[str]) -> list[Entry]:
    """Everything in the directory, by name; what stands in the directory's own place goes aside.

    StoreRefusedError for a link: its purpose is not known; an operator must decide.
    """
    itself = files.entry(INDEX)
    if itself is None:
        return []
    if itself.kind is EntryKind.LINK:
        raise StoreRefusedError(f"{INDEX} is a link: mount a volume there, or remove it")
    if itself.kind is not EntryKind.DIRECTORY:
        kept = move_aside(files, INDEX)
        report.append(f"{INDEX}: a {itself.kind.value}, no directory; moved to {kept}")
        return []
    return files.list(INDEX)


def look(files: Files, found: list[Entry], geometry: FileGeometry) -> Fit:
    """How the newest files judge a geometry."""
    fitting = [entry for entry in found if is_candidate(entry, geometry)]
    votes = [_vote(files, entry, geometry) for entry in fitting[-_LOOK_AT_FILES:]]
    good, bad = votes.count(True), votes.count(False)
    if good and good >= bad:
        return Fit.ITEMS
    return Fit.LENGTH if fitting and not bad else Fit.NONE


def infer(files: Files, found: list[Entry]) -> FileGeometry | None:
    """What a file shows of its own slots and items, newest file first; None: nothing certain.

    The last item stands at a place that both numbers follow from, and has the offset that the
    header calls the last; the newest items must hang in the slots of their hashes, too.
    """
    for entry in reversed(found[-_LOOK_AT_FILES:]):
        try:
            with closing(files.open(path_of(entry.name))) as file:
                for geometry in _geometries(file):
                    if _vote(files, entry, geometry):
                        return geometry
        except OSError:
            continue  # `scan` reports it
    return None


def _geometries(file: File) -> Iterator[FileGeometry]:
    """Those in which the last item has the header's last offset."""
    header = decode_index_header(file.read(0, INDEX_HEADER_BYTES))
    if header is None or header.next_item < 2 or not header.end_phy_offset > 0:
        return
    wanted = header.end_phy_offset.to_bytes(8, "big")
    at = INDEX_HEADER_BYTES
    while at < file.size:
        piece = file.read_cold(at, _PIECE_BYTES + len(wanted) - 1)
        place = piece.find(wanted)
        while place >= 0:
            first = at + place - _OFFSET_IN_ITEM - INDEX_ITEM_BYTES * (header.next_item - 1)
            slots, left = divmod(first - INDEX_HEADER_BYTES, INDEX_SLOT_BYTES)
            items, beyond = divmod(file.size - first, INDEX_ITEM_BYTES)
            geometry = FileGeometry(slots, items)
            if not left and not beyond and geometry.is_possible and items >= header.next_item:
                yield geometry
            place = piece.find(wanted, place + 1)
        at += _PIECE_BYTES


def _vote(files: Files, entry: Entry, geometry: FileGeometry) -> bool | None:
    try:
        with closing(IndexFileReader.open(files, path_of(entry.name), geometry)) as reader:
            return reader.sample_slots()
    except OSError:
        return None  # `scan` reports it


def scan(files: Files, geometry: FileGeometry, report: list[str]) -> list[ListedFile]:
    """The index files, oldest first. Everything else is moved aside, a line each in `report`."""
    found = []
    moved = False
    for entry in entries(files, report):
        path = path_of(entry.name)
        fault = _fault(entry, geometry)
        if not fault:
            try:
                found.append(ListedFile(entry.name, _sane_header(files, path, geometry)))
                continue
            except OSError as error:
                fault = f"cannot be read: {error.strerror}"
        report.append(f"{path}: {fault}; moved to {move_aside(files, path)}")
        moved = True
    if moved:
        files.sync_directory(INDEX)
    return found


def move_aside(files: Files, path: str) -> str:
    """Rename to a free name below `stratamq/aside/index`; the caller syncs where it came from."""
    files.make_directory(ASIDE)
    name = base_name(path)
    target, count = f"{ASIDE}/{name}", 1
    while files.entry(target) is not None:
        count += 1
        target = f"{ASIDE}/{name}.{count}"
    files.replace(path, target)
    files.sync_directory(ASIDE)
    if path == INDEX:
        files.sync_directory(parent(path))
    return target


def is_candidate(entry: Entry, geometry: FileGeometry) -> bool:
    return not _fault(entry, geometry)


def is_index_name(entry: Entry) -> bool:
    """Whether RocketMQ or we could have made this file, in whatever geometry."""
    return (
        entry.kind is EntryKind.FILE and entry.size > 0 and parse_index_name(entry.name) is not None
    )


def _fault(entry: Entry, geometry: FileGeometry) -> str:
    if entry.kind is not EntryKind.FILE:
        return f"a {entry.kind.value}, no file"
    if parse_index_name(entry.name) is None:
        return "not the name of an index file"
    if entry.size != geometry.file_bytes:
        return f"{entry.size} bytes, not the {geometry.file_bytes} of {geometry}"
    return ""


def _sane_header(files: Files, path: str, geometry: FileGeometry) -> IndexHeader | None:
    with closing(IndexFileReader.open(files, path, geometry)) as reader:
        header = reader.header()
    if header is None or not -1 <= header.index_count <= geometry.items:
        return None
    if not 0 <= header.begin_phy_offset <= header.end_phy_offset:
        return None
    return header
