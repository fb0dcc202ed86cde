"""How fast a log becomes an Arrow table, beside copying its bytes into Arrow arrays.

Two stores are filled first, one of them with messages of uneven sizes, and are in the page cache;
then floor and scan take turns, each in a process of its own. `copy` is the unavoidable work: the
segments are read piece by piece, and their bytes copied into binary Arrow arrays, a row a frame,
where each frame ends being known beforehand. `checked` also holds each record against the checksum
it ends in.
"""

import os
import resource
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
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
from stratamq_bench.streaming import FilledStore, fill

SEGMENT_BYTES = 256 * MIB
FLOORS = {
    "copy": "read, and copy the frames",
    "checked": "read, copy, and check each frame's CRC",
}
EVEN, UNEVEN = KINDS = "even", "uneven"
WORK = (*FLOORS, "scan", "unverified")
CASES = (
    ("scan().to_arrow(), all columns", (EVEN, "scan"), (EVEN, "copy"), at_least(0.5)),
    ("beside a floor that verifies", (EVEN, "scan"), (EVEN, "checked"), at_least(0.8)),
    ("verify=False", (EVEN, "unverified"), (EVEN, "copy"), ()),
    ("uneven", (UNEVEN, "scan"), (UNEVEN, "copy"), ()),
    ("uneven, beside a floor that verifies", (UNEVEN, "scan"), (UNEVEN, "checked"), at_least(0.5)),
    ("uneven, verify=False", (UNEVEN, "unverified"), (UNEVEN, "copy"), ()),
    ("uneven, beside the scan of even ones", (UNEVEN, "scan"), (EVEN, "scan"), at_least(0.5)),
)
"""What is measured of which store, the floor that it is compared with, and its bars."""


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
    stores: dict[str, FilledStore] = {}
    for kind in KINDS:
        place = directory / kind
        place.mkdir()
        how = {"uneven": kind == UNEVEN}
        stores[kind] = fill(place, options.messages, options.body, SEGMENT_BYTES, **how)
    found: dict[tuple[str, str], list[Measured]] = defaultdict(list)

    def measure(kind: str, what: str) -> None:
        store = stores[kind]
        how = {"root": store.root, "messages": store.messages, "what": what}
        found[kind, what].append(Measured(**child.run("scan.work", **how)))

    for _ in range(options.rounds):
        for kind, what in product(KINDS, WORK):
            measure(kind, what)
    for kind, what in (*product(KINDS, FLOORS), (EVEN, "scan")):
        measure(kind, what)
    cases = []
    for name, (kind, what), (floor_kind, floor), bars in CASES:
        rounds = found[kind, what][: options.rounds]
        floors = found[floor_kind, floor]
        peak_mb = max(one.more["peak_mb"] for one in rounds)
        case = compared(
            FLOORS.get(floor, "scan the even store"), floors, rounds, options.body, pss_mb=peak_mb
        )
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
