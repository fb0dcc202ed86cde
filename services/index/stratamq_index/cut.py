"""Drop everything from a log offset on: at once in memory, then in the files.

A log that must cut ends all streams first and sends its followers the offset. No job runs while the
series is cut; the `CutJob` that comes out is the next one.
"""

from collections.abc import Callable
from contextlib import closing

import numpy as np

from stratamq.files.port import Files
from stratamq.formats.index_columns import IndexItems
from stratamq.formats.index_layout import IndexHeader
from stratamq.formats.numbers import INT32_MAX
from stratamq.formats.store_paths import INDEX
from stratamq_index.geometry import FileGeometry
from stratamq_index.index_file import IndexFileReader, WritableIndexFile, path_of, rewrite
from stratamq_index.replay import replay, run
from stratamq_index.series import FileSeries, OpenFile

StoreTime = Callable[[int], int | None]
"""The store time of the message at a log offset; None when the log does not have it."""


class CutJob:
    """Runs in the write lane: the files become what the series holds. May be repeated."""

    def __init__(
        self,
        files: Files,
        geometry: FileGeometry,
        gone: list[tuple[str, WritableIndexFile | None]],
        shortened: OpenFile | None,
        header: IndexHeader | None,
    ) -> None:
        """`header` goes with the items of `shortened` that stay on disk."""
        self.shortened = shortened
        self._files = files
        self._geometry = geometry
        self._gone = gone
        self._old = shortened.disk if shortened else None
        self._end = shortened.written if shortened else 0
        self._header = header
        self._table = shortened.disk_table() if shortened else None

    def run(self) -> WritableIndexFile | None:
        """The shortened file, open again; all durable."""
        for name, disk in self._gone:
            if disk is not None:
                disk.close()
            if self._files.entry(path_of(name)) is not None:
                self._files.unlink(path_of(name))
        disk = None
        if self.shortened is not None and self._header is not None and self._table is not None:
            if self._old is not None:
                self._old.close()
            path = path_of(self.shortened.name)
            disk = rewrite(
                self._files, path, self._geometry, self._end, self._header, self._table.copy()
            )
        if self._files.entry(INDEX) is not None:
            self._files.sync_directory(INDEX)
        return disk


def cut_series(series: FileSeries, offset: int, files: Files, store_time: StoreTime) -> CutJob:
    """Forget in memory all items of messages from `offset` on. OSError passes, nothing changed yet.

    Reads what is dropped of the last file kept, and all of a sealed file that must be opened again.
    """
    gone: list[tuple[str, WritableIndexFile | None]] = []
    shortened: OpenFile | None = None
    series.position = min(series.position, offset)
    while series.open:
        file = series.open[-1]
        touched = file.unsure
        _cut_blocks(series, file, offset)
        if not file.blocks and file.written > 1:
            touched |= _cut_disk(file, series.geometry, offset, files)
        if file.state.next_item > 1:
            _set_end(file, series.geometry, files, store_time)
            if touched and file.written > 1:
                shortened = file
            elif touched:
                # Nothing of it is on disk for certain: the next job makes it again.
                gone.append((file.name, file.disk))
                file.disk = None
            file.unsure = False
            break
        gone.append((file.name, file.disk))
        series.open.pop()
    if not series.open:
        while series.sealed and series.sealed[-1].header.begin_phy_offset >= offset:
            gone.append((series.sealed.pop().name, None))
        if series.sealed and series.sealed[-1].header.end_phy_offset >= offset:
            file = _open_again(series, files)
            _cut_disk(file, series.geometry, offset, files)
            _set_end(file, series.geometry, files, store_time)
            series.sealed.pop()
            series.open.append(file)
            shortened = file
    series.rewind()
    header = series.disk_header(shortened) if shortened else None
    return CutJob(files, series.geometry, gone, shortened, header)


def _cut_blocks(series: FileSeries, file: OpenFile, offset: int) -> None:
    while file.blocks:
        block = file.blocks[-1]
        offsets = block.records["physical_offset"].astype(np.int64)
        kept = int(np.searchsorted(offsets, offset))
        if kept == len(block):
            return
        file.state.cut(block.first_number + kept, block.slot[kept:], block.previous[kept:])
        series.pending_items -= len(block) - kept
        file.blocks.pop()
        if kept:
            file.blocks.append(
                IndexItems(
                    block.first_number,
                    block.records[:kept],
                    block.key_hash[:kept],
                    block.slot[:kept],
                    block.previous[:kept],
                )
            )
            return


def _cut_disk(file: OpenFile, geometry: FileGeometry, offset: int, files: Files) -> bool:
    """Whether items that are on disk were dropped."""
    with closing(IndexFileReader.open(files, path_of(file.name), geometry)) as reader:
        end = reader.first_at(offset, file.written)
        if end == file.written:
            return False
        pieces = list(reader.pieces(end, file.written))
        for number, records in reversed(pieces):
            slot = (records["key_hash"] & INT32_MAX).astype(np.int32) % np.int32(geometry.slots)
            file.state.cut(number, slot, records["previous"].astype(np.int32))
    file.written = end
    return True


def _set_end(file: OpenFile, geometry: FileGeometry, files: Files, store_time: StoreTime) -> None:
    """The header's end is that of the last item kept."""
    if file.blocks:
        last = file.blocks[-1].records[-1]
    else:
        with closing(IndexFileReader.open(files, path_of(file.name), geometry)) as reader:
            last = reader.records(file.written - 1, file.written)[0]
    state = file.state
    state.end_phy_offset = int(last["physical_offset"])
    time_ms = store_time(state.end_phy_offset)
    if time_ms is None:
        # The message is gone from the log: no query returns it, to the second is near enough.
        time_ms = state.begin_timestamp_ms + 1000 * int(last["seconds"])
    state.end_timestamp_ms = time_ms


def _open_again(series: FileSeries, files: Files) -> OpenFile:
    record = series.sealed[-1]
    before: IndexHeader | None = series.sealed[-2].header if len(series.sealed) > 1 else None
    with closing(IndexFileReader.open(files, path_of(record.name), series.geometry)) as reader:
        state = run(replay(reader, series.geometry, record.header)).state
    return OpenFile(record.name, state, before, written=state.next_item)
