"""One index file on disk: read piece by piece, appended to by one writer.

`formats.index_layout` has the byte table. Readers use `pread` alone: a page fault in a mapping of
a cold file would stop the whole process, a `pread` does not.

A file that is written to lives in the write lane: `WritableIndexFile` and everything in it belong
to the `Worker` that runs its calls, its own copy of the slot table included, so that slots are
written out while the engine's table changes.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.files.port import INDEX_TEMPORARY, File, Files
from stratamq.formats.index_columns import INDEX_ITEM_DTYPE, IndexItems, encode_slots
from stratamq.formats.index_layout import (
    INDEX_HEADER_BYTES,
    INDEX_ITEM_BYTES,
    INDEX_SLOT,
    INDEX_SLOT_BYTES,
    IndexHeader,
    decode_index_header,
    encode_index_header,
    item_position,
    slot_position,
)
from stratamq.formats.store_paths import INDEX
from stratamq_index.geometry import FileGeometry

TEMPORARY_PREFIX = INDEX_TEMPORARY
"""The names of our files in `stratamq/tmp` begin so. They mean nothing after a start."""
PIECE_ITEMS = 16 * 1024
"""Items per step of whatever reads a whole file: 320 KiB, and 2 ms of work."""
_SAMPLE_ITEMS = 64
_ZEROS = bytes(PIECE_ITEMS * INDEX_ITEM_BYTES)


@dataclass(frozen=True, slots=True)
class EdgeKeys:
    """The message that a file begins or ends with, and the hashes of its keys in that file.

    The rest of its keys, if it has more, is in the file before or behind.
    """

    physical_offset: int
    key_hashes: tuple[int, ...]

    @classmethod
    def of(cls, records: NDArray[np.void]) -> "EdgeKeys":
        return cls(int(records["physical_offset"][0]), tuple(records["key_hash"].tolist()))


def path_of(name: str) -> str:
    return f"{INDEX}/{name}"


class IndexFileReader:
    """Reads one file of a known geometry. Never raises for what it holds; OSError passes."""

    def __init__(self, file: File, geometry: FileGeometry) -> None:
        self._file = file
        self.slots = geometry.slots
        self.items = geometry.items

    @classmethod
    def open(cls, files: Files, path: str, geometry: FileGeometry) -> "IndexFileReader":
        return cls(files.open(path), geometry)

    def header(self) -> IndexHeader | None:
        """None when the file is too short for one."""
        return decode_index_header(self._file.read(0, INDEX_HEADER_BYTES))

    def slot(self, slot: int) -> int:
        """The number that stands in the slot, whatever it is; 0 beyond the end of the file."""
        raw = self._file.read(slot_position(slot), INDEX_SLOT_BYTES)
        return INDEX_SLOT.unpack(raw)[0] if len(raw) == INDEX_SLOT_BYTES else 0

    def table(self) -> NDArray[np.int32]:
        raw = self._file.read(slot_position(0), INDEX_SLOT_BYTES * self.slots)
        return np.frombuffer(raw, ">i4").astype(np.int32)

    def records(self, first: int, end: int) -> NDArray[np.void]:
        """Items `first` … `end` − 1, fewer where the file ends."""
        raw = self.raw(first, end)
        return np.frombuffer(raw, INDEX_ITEM_DTYPE, len(raw) // INDEX_ITEM_BYTES)

    def raw(self, first: int, end: int) -> bytes:
        length = INDEX_ITEM_BYTES * max(end - first, 0)
        return self._file.read(item_position(first, self.slots), length)

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, NDArray[np.void]]]:
        """(number of the first, records) of consecutive pieces of a range of items."""
        while first < end:
            records = self.records(first, min(first + PIECE_ITEMS, end))
            if not len(records):
                return
            yield first, records
            first += len(records)

    def tail_keys(self, end: int) -> "EdgeKeys | None":
        """Belongs to the last message below item `end`; None when there is no item."""
        first = end
        while first > 1:
            first = max(1, end - 2 * (end - first) - 64)
            records = self.records(first, end)
            if not len(records):
                return None
            other = np.flatnonzero(records["physical_offset"] != records["physical_offset"][-1])
            if len(other) or first == 1:
                return EdgeKeys.of(records[other[-1] + 1 if len(other) else 0 :])
        return None

    def head_keys(self, end: int) -> "EdgeKeys | None":
        """Belongs to the first message; only items below `end` count."""
        stop = 1
        while stop < end:
            stop = min(end, 1 + 2 * (stop - 1) + 64)
            records = self.records(1, stop)
            if not len(records):
                return None
            other = np.flatnonzero(records["physical_offset"] != records["physical_offset"][0])
            if len(other) or stop == end:
                return EdgeKeys.of(records[: other[0] if len(other) else len(records)])
        return None

    def first_at(self, offset: int, end: int) -> int:
        """The number of the first item below `end` that stands at or above `offset`, else `end`."""
        low, high = 1, end
        while low < high:
            middle = (low + high) // 2
            records = self.records(middle, middle + 1)
            if len(records) and int(records["physical_offset"][0]) < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def sample_slots(self) -> bool | None:
        """Whether the newest items hang in the slots of their hashes; None: there are no items.

        Most must: a file that a crash left torn may have lost some.
        """
        header = self.header()
        if header is None or not 1 < header.next_item <= self.items:
            return None
        end = header.next_item
        first = max(1, end - _SAMPLE_ITEMS)
        hashes = self.records(first, end)["key_hash"].tolist()
        good = sum(
            key_hash >= 0 and self._hangs(key_hash, first + index, end)
            for index, key_hash in enumerate(hashes)
        )
        return 2 * good > len(hashes)

    def is_zero_from(self, number: int) -> bool:
        """Whether nothing was ever written at item `number` or behind it."""
        for first in range(number, self.items, PIECE_ITEMS):
            raw = self.raw(first, min(first + PIECE_ITEMS, self.items))
            if raw != _ZEROS[: len(raw)]:
                return False
        return True

    def _hangs(self, key_hash: int, number: int, end: int) -> bool:
        newest = self.slot(key_hash % self.slots)
        if not number <= newest < end:
            return False
        found = self.records(newest, newest + 1)["key_hash"].tolist()
        return bool(found) and found[0] >= 0 and found[0] % self.slots == key_hash % self.slots

    def close(self) -> None:
        self._file.close()


class WritableIndexFile:
    """The current file in the write lane. Durable after `sync`, in whatever order."""

    def __init__(self, file: File, geometry: FileGeometry, table: NDArray[np.int32]) -> None:
        """`table` becomes this object's own: the slots of all items that are in the file."""
        self._file = file
        self._geometry = geometry
        self._table = table

    @classmethod
    def create(
        cls, files: Files, path: str, geometry: FileGeometry, header: IndexHeader
    ) -> "WritableIndexFile":
        """A new file, sparse and durable, with the header of an empty one."""
        with contextlib.suppress(FileNotFoundError):
            files.unlink(path)  # left by an attempt that did not come to its end
        files.create(path, geometry.file_bytes, sparse=True)
        file = files.open(path, writable=True)
        try:
            file.write(0, encode_index_header(header))
        except OSError:
            file.close()
            raise
        return cls(file, geometry, np.zeros(geometry.slots, np.int32))

    def append(self, items: IndexItems) -> None:
        position = item_position(items.first_number, self._geometry.slots)
        self._file.write(position, items.records.tobytes())
        # In order of age, so that the newest of a slot stays.
        self._table[items.slot] = np.arange(items.first_number, items.end_number, dtype=np.int32)

    def write_slots(self, header: IndexHeader) -> None:
        """The slots of all items appended so far, then the header that counts them."""
        self._file.write(slot_position(0), encode_slots(self._table))
        self._file.write(0, encode_index_header(header))

    def sync(self) -> None:
        """SyncError."""
        try:
            self._file.flush()
        except OSError as error:
            raise SyncError(error) from error

    def reopen(self, files: Files, path: str) -> None:
        """The file has come to `path`, perhaps as a copy on another volume."""
        self._file.close()
        self._file = files.open(path, writable=True)

    def close(self) -> None:
        self._file.close()


def rewrite(
    files: Files,
    path: str,
    geometry: FileGeometry,
    end: int,
    header: IndexHeader,
    table: NDArray[np.int32],
) -> WritableIndexFile:
    """Replace a file by one that has its items below `end` and nothing else, durably.

    A new file, because another process may have the old one mapped; sparse again, and zeros behind
    the last item, as if the items that were cut had never been there. `table` becomes the file's.
    """
    source = IndexFileReader.open(files, path, geometry)

    def fill(target: File) -> None:
        for number, records in source.pieces(1, end):
            target.write(item_position(number, geometry.slots), records.tobytes())
        disk = WritableIndexFile(target, geometry, table)
        disk.write_slots(header)
        disk.sync()

    try:
        files.rewrite(path, geometry.file_bytes, fill, sparse=True)
    finally:
        source.close()
    return WritableIndexFile(files.open(path, writable=True), geometry, table)


class SyncError(Exception):
    """A flush of an index file failed: never retried, and only a start that cuts recovers."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def close_all(disks: Sequence[WritableIndexFile]) -> None:
    for disk in disks:
        disk.close()


def sync_files(files: Files, names: Sequence[str]) -> None:
    """Whatever other processes wrote there. SyncError."""
    for name in names:
        if files.entry(path_of(name)) is None:
            continue  # gone since; a question that needs it finds nothing there either
        file = files.open(path_of(name), writable=True)
        try:
            file.flush()
        except OSError as error:
            raise SyncError(error) from error
        finally:
            file.close()


def unlink_files(files: Files, names: Sequence[str]) -> None:
    """Those that are still there, durably."""
    for name in names:
        if files.entry(path_of(name)) is not None:
            files.unlink(path_of(name))
    if names:
        files.sync_directory(INDEX)
