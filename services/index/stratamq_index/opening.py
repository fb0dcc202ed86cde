"""From a store directory to an index that can go on: left-overs, geometry, watermark, recovery."""

from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Files
from stratamq.formats.store_paths import INDEX, INDEX_GEOMETRY_PATH, TEMPORARY_DIRECTORY
from stratamq_index import geometry as geometries
from stratamq_index.directory import entries, infer, is_index_name, look, move_aside
from stratamq_index.geometry import FileGeometry
from stratamq_index.index_file import TEMPORARY_PREFIX, path_of
from stratamq_index.recovery import RecoveredIndex, recover
from stratamq_index.writer import Writer


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
