"""The processes of `stratamq bench scan`: a scan into an Arrow table, or its floor.

    python -m stratamq_bench.scan_client --root DIR --messages N
        --what scan|unverified|copy|checked

`copy` is the unavoidable work: the segments are read piece by piece, and their bytes copied
into binary Arrow arrays, a row a frame, where each frame ends being known beforehand. `checked`
also holds each record against the checksum it ends in. Prints one JSON object: seconds and CPU of
the best of `--times` times, peak memory.
"""

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from isal import isal_zlib

import stratamq
from stratamq.formats.crc import CRC_MASK
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.table.log_files import LogFiles, open_log
from stratamq_bench.checks import Mismatch

PIECE_BYTES = 4 << 20
_DIGITS = 10
"""Of a record's checksum, the lowest first; a separator stands behind them."""


class Copy:
    """The floor. Whole frames of about `PIECE_BYTES` at a time."""

    def __init__(self, root: Path, *, check: bool = False) -> None:
        self._check = check
        self._log: LogFiles = open_log(root)
        columns = ["physicalOffset", "size"]
        places = stratamq.scan(root, columns=columns, verify=False).to_arrow()
        self._starts = places["physicalOffset"].to_numpy()
        self._ends = self._starts + places["size"].to_numpy()

    def __call__(self) -> pa.Table:
        batches = []
        for segment in self._log.segments:
            first, last = np.searchsorted(self._starts, [segment.start, segment.end])
            with open(segment.path, "rb", buffering=0) as file:
                while first < last:
                    begin = int(self._starts[first])
                    behind = int(np.searchsorted(self._ends, begin + PIECE_BYTES, "right"))
                    behind = min(max(behind, first + 1), last)
                    ends = self._ends[first:behind] - begin
                    data = os.pread(file.fileno(), int(ends[-1]), begin - segment.start)
                    if self._check:
                        _check(data, ends)
                    batches.append(_frames(data, ends))
                    first = behind
        return pa.Table.from_batches(batches)


def _check(data: bytes, ends: np.ndarray) -> None:
    """Every record, in a loop that does nothing else. Mismatch."""
    view, start, crc32 = memoryview(data), 0, isal_zlib.crc32
    for end in ends.tolist():
        stated = int(data[end - 2 : end - 2 - _DIGITS : -1])
        if crc32(view[start : end - PROPERTY_CRC_BYTES]) & CRC_MASK != stated:
            raise Mismatch(f"the frame that ends at {end} is not what was written")
        start = end


def _frames(data: bytes, ends: np.ndarray) -> pa.RecordBatch:
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    copied = pa.allocate_buffer(len(data))
    np.frombuffer(copied, np.uint8)[:] = np.frombuffer(data, np.uint8)
    buffers = [None, pa.py_buffer(offsets), copied]
    frames = pa.Array.from_buffers(pa.binary(), len(ends), buffers)
    return pa.RecordBatch.from_arrays([frames], ["frame"])


def work(what: str, root: Path) -> Callable[[], pa.Table]:
    if what in ("copy", "checked"):
        return Copy(root, check=what == "checked")
    return stratamq.scan(root, verify=what == "scan").to_arrow


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--root", type=Path, required=True, help="the store directory")
    parser.add_argument("--messages", type=int, required=True, help="how many it holds")
    parser.add_argument("--what", choices=("scan", "unverified", "copy", "checked"), required=True)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    run = work(options.what, options.root)
    found = []
    for _ in range(options.times):
        wall, cpu = time.perf_counter(), time.process_time()
        table = run()
        found.append((time.perf_counter() - wall, time.process_time() - cpu))
        if len(table) != options.messages:
            raise Mismatch(f"{len(table)} rows of {options.messages} messages")
        del table
    answer = {
        "seconds": min(wall for wall, _ in found),
        "cpu_s": min(cpu for _, cpu in found),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
