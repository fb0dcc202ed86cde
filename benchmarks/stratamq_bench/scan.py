"""How fast a log becomes an Arrow table, beside copying its bytes into Arrow arrays.

A store is filled first, and is in the page cache; then floor and scan take turns, each in a
process of its own. `copy` is the unavoidable work: the segments are read piece by piece, and their
bytes copied into binary Arrow arrays, a row a frame, where each frame ends being known beforehand.
`checked` also holds each record against the checksum it ends in.
"""

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from isal import isal_zlib

import stratamq
from stratamq.formats.crc import CRC_MASK
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.table.log_files import LogFiles, open_log
from stratamq_bench import child
from stratamq_bench.load import Mismatch
from stratamq_bench.plan import MIB
from stratamq_bench.report import Case, Measured, at_least, best_of, compared
from stratamq_bench.streaming import fill

SEGMENT_BYTES = 256 * MIB
FLOORS = {
    "copy": "read, and copy the frames",
    "checked": "read, copy, and check each frame's CRC",
}
WORK = (*FLOORS, "scan", "unverified")


TIMES = 3
"""Each round is measured this many times; the best result counts."""
PIECE_BYTES = 4 << 20
_DIGITS = 10
"""The number of digits in a record's checksum, the lowest first; a separator follows them."""


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int
    body: int
    messages: int


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. Raises StrataError."""
    store = fill(directory, options.messages, options.body, SEGMENT_BYTES)
    found: dict[str, list[Measured]] = {what: [] for what in WORK}

    def measure(what: str) -> None:
        how = {"root": store.root, "messages": store.messages, "what": what}
        found[what].append(Measured(**child.run("scan.work", **how)))

    for _ in range(options.rounds):
        for what in WORK:
            measure(what)
    for floor in FLOORS:
        measure(floor)
    cases = []
    for name, what, floor, bars in (
        ("scan().to_arrow(), all columns", "scan", "copy", at_least(0.5)),
        ("the same, beside a floor that verifies", "scan", "checked", ()),
        ("the same, verify=False", "unverified", "copy", ()),
    ):
        peak_mb = max(one.more["peak_mb"] for one in found[what])
        case = compared(FLOORS[floor], found[floor], found[what], options.body, pss_mb=peak_mb)
        messages = case.messages * TIMES
        name = f"{name}, {options.body} B"
        cases.append(replace(case, case=name, bars=bars, messages=messages))
    return cases


def work(root: str, messages: int, what: str) -> Measured:
    """One process of a scan or its floor. Mismatch."""
    rows = _rows_of(what, Path(root))

    def once() -> None:
        if (count := len(rows())) != messages:
            raise Mismatch(f"{count} rows of {messages} messages")

    found = best_of(TIMES, "python", messages, once)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return replace(found, more={"peak_mb": peak_mb})


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


def _rows_of(what: str, root: Path) -> Callable[[], pa.Table]:
    if what in ("copy", "checked"):
        return Copy(root, check=what == "checked")
    return stratamq.scan(root, verify=what == "scan").to_arrow
