"""Files of an Iceberg table that none of its snapshots names: of runs that were killed, of commits
that met faster ones, and of snapshots that were removed.

pyiceberg has no command for them. A commit that is under way has such files, too, hence only what
was last written before a moment long enough ago is taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from stratamq.files.port import Clock
from stratamq_pipeline.iceberg.table import catalog_at
from stratamq_pipeline.jobs.summary import Progress, Summary


@dataclass(frozen=True, slots=True)
class OrphanOptions:
    """`remove`: else they are only counted."""

    out: str
    table: str
    catalog: str | None
    hours: float
    remove: bool


def run_iceberg_orphans(options: OrphanOptions, clock: Clock, progress: Progress) -> Summary:
    """Count, or remove, files that were written more than `hours` ago and that nothing names."""
    before = datetime.fromtimestamp(clock.wall_ms() / 1000).astimezone()
    before -= timedelta(hours=options.hours)
    with catalog_at(options.out, options.catalog) as catalog:
        table = catalog.load_table(options.table)
        found = orphans(table, before)
        progress(f"{len(found)} files are named by nothing")
        if options.remove:
            for path in found:
                table.io.delete(path)
    facts: dict[str, Any] = {
        "table": options.table,
        "files": len(found),
        "bytes": sum(found.values()),
        "result": "removed" if options.remove else "counted",
    }
    return Summary("iceberg-orphans", facts)


def orphans(table: Table, before: datetime) -> dict[str, int]:
    """Paths and sizes of files below the table's location that were written before that moment and
    that its metadata does not name. The listing comes first: what is committed later is newer."""
    listed = _listed(table, before)
    table.refresh()
    for path in _named(table):
        listed.pop(_plain(path), None)
    scheme = PyArrowFileIO.parse_location(table.location())[0]
    return {f"{scheme}://{path}": size for path, size in listed.items()}


def _listed(table: Table, before: datetime) -> dict[str, int]:
    scheme, netloc, path = PyArrowFileIO.parse_location(table.location())
    files = PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc)
    found = files.get_file_info(FileSelector(path, recursive=True))
    return {one.path: one.size for one in found if one.type == FileType.File and one.mtime < before}


def _named(table: Table) -> Iterator[str]:
    """Yield what all snapshots and the table's own history name."""
    metadata = table.metadata
    yield table.metadata_location
    yield from (one.metadata_file for one in metadata.metadata_log)
    yield from (one.statistics_path for one in metadata.statistics)
    yield from (one.statistics_path for one in metadata.partition_statistics)
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest.manifest_path
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                    yield entry.data_file.file_path


def _plain(path: str) -> str:
    """Without the scheme, as a listing has it."""
    return PyArrowFileIO.parse_location(path)[2]
