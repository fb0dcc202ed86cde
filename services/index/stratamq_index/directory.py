"""The content of `index/`: the files that can be index files, and everything else put aside.

RocketMQ reads whatever stands there, so nothing that is no index file may stay. What is put aside
is renamed to `stratamq/aside/index/`, reported, and not read again: the log can build it anew.
"""

from dataclasses import dataclass

from stratamq.errors import StoreRefusedError
from stratamq.files.paths import base_name, parent
from stratamq.files.port import Entry, Files, Kind
from stratamq.formats.file_names import parse_index_name
from stratamq.formats.index_layout import IndexHeader
from stratamq.formats.store_paths import ASIDE_DIRECTORY, INDEX
from stratamq_index.geometry import Fit, Geometry
from stratamq_index.index_file import IndexFileReader, path_of

ASIDE = f"{ASIDE_DIRECTORY}/{INDEX}"
_LOOK_AT_FILES = 8
"""The newest so many decide about the geometry."""


@dataclass(frozen=True, slots=True)
class Found:
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
    if itself.kind is Kind.LINK:
        raise StoreRefusedError(f"{INDEX} is a link: mount a volume there, or remove it")
    if itself.kind is not Kind.DIRECTORY:
        kept = move_aside(files, INDEX)
        report.append(f"{INDEX}: a {itself.kind.value}, no directory; moved to {kept}")
        return []
    return files.list(INDEX)


def look(files: Files, found: list[Entry], geometry: Geometry) -> Fit:
    """How the newest files judge a geometry."""
    fitting = [entry for entry in found if is_candidate(entry, geometry)]
    votes = [_vote(files, entry, geometry) for entry in fitting[-_LOOK_AT_FILES:]]
    good, bad = votes.count(True), votes.count(False)
    if good and good >= bad:
        return Fit.ITEMS
    return Fit.LENGTH if fitting and not bad else Fit.NONE


def _vote(files: Files, entry: Entry, geometry: Geometry) -> bool | None:
    try:
        reader = IndexFileReader.open(files, path_of(entry.name), geometry)
        try:
            return reader.sample_slots()
        finally:
            reader.close()
    except OSError:
        return None  # `scan` reports it


def scan(files: Files, geometry: Geometry, report: list[str]) -> list[Found]:
    """The index files, oldest first. Everything else is moved aside, a line each in `report`."""
    found = []
    moved = False
    for entry in entries(files, report):
        path = path_of(entry.name)
        fault = _fault(entry, geometry)
        if not fault:
            try:
                found.append(Found(entry.name, _sane_header(files, path, geometry)))
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


def is_candidate(entry: Entry, geometry: Geometry) -> bool:
    return not _fault(entry, geometry)


def is_index_name(entry: Entry) -> bool:
    """Whether RocketMQ or we could have made this file, in whatever geometry."""
    return entry.kind is Kind.FILE and entry.size > 0 and parse_index_name(entry.name) is not None


def _fault(entry: Entry, geometry: Geometry) -> str:
    if entry.kind is not Kind.FILE:
        return f"a {entry.kind.value}, no file"
    if parse_index_name(entry.name) is None:
        return "not the name of an index file"
    if entry.size != geometry.file_bytes:
        return f"{entry.size} bytes, not the {geometry.file_bytes} of {geometry}"
    return ""


def _sane_header(files: Files, path: str, geometry: Geometry) -> IndexHeader | None:
    reader = IndexFileReader.open(files, path, geometry)
    try:
        header = reader.header()
    finally:
        reader.close()
    if header is None or not -1 <= header.index_count <= geometry.items:
        return None
    if not 0 <= header.begin_phy_offset <= header.end_phy_offset:
        return None
    return header
