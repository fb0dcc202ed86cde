"""A log written from its beginning: records get the places that they have in it."""

import numpy as np
from numpy.typing import NDArray

from stratamq.errors import InvalidRequestError
from stratamq.files.port import File, Files
from stratamq.formats.file_names import offset_name
from stratamq.formats.frame import encode_blank
from stratamq.formats.frame_layout import END_FILE_MIN_BLANK_LENGTH
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.formats.tier_records import place_records
from stratamq.store.queue_snapshot import FrameMark, mark

I64 = NDArray[np.int64]

_WRITTEN_BYTES = 4 << 20


class LogWriter:
    """Blocking. `end`: one past the last record, in bytes from the log's beginning."""

    def __init__(self, files: Files, segment_bytes: int) -> None:
        self.end = 0
        self.last: FrameMark | None = None
        """The last record that is written."""
        self._files = files
        self._segment_bytes = segment_bytes
        self._file: File | None = None
        self._base = 0
        """The segment's base."""
        self._held = bytearray()
        self._sizes: list[I64] = []

    def add(self, records: memoryview, sizes: I64) -> None:
        """InvalidRequestError for a record that is larger than a segment."""
        while len(sizes):
            room = self._base + self._segment_bytes - END_FILE_MIN_BLANK_LENGTH - self.end
            count = int(np.searchsorted(np.cumsum(sizes), room, "right"))
            if not count:
                self._roll(int(sizes[0]))
                continue
            size = int(sizes[:count].sum())
            self._held += records[:size]
            self._sizes.append(sizes[:count])
            self.end += size
            records, sizes = records[size:], sizes[count:]
            if len(self._held) >= _WRITTEN_BYTES:
                self._write()

    def finish(self) -> None:
        """Everything is durable on return."""
        self._write()
        if self._file is not None:
            self._file.flush()
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _roll(self, size: int) -> None:
        if self.end == self._base:
            raise InvalidRequestError(
                f"a message of {size} bytes does not fit a segment of {self._segment_bytes}: "
                "restore with larger ones (--segment-bytes)"
            )
        self._write()
        file, segment_end = self._open(), self._base + self._segment_bytes
        file.write(self.end - self._base, encode_blank(segment_end - self.end))
        file.flush()
        self.close()
        self._base = self.end = segment_end

    def _write(self) -> None:
        if not self._held:
            return
        sizes = np.concatenate(self._sizes)
        start = self.end - len(self._held)
        starts = np.cumsum(sizes) - sizes
        place_records(self._held, starts, sizes, start)
        self._open().write(start - self._base, self._held)
        self.last = mark(start + int(starts[-1]), bytes(self._held[int(starts[-1]) :]))
        self._held, self._sizes = bytearray(), []

    def _open(self) -> File:
        if self._file is None:
            path = f"{COMMIT_LOG}/{offset_name(self._base)}"
            self._files.create(path, self._segment_bytes)
            self._file = self._files.open(path, writable=True)
        return self._file
