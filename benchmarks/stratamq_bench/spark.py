"""How fast a log becomes a Spark table, beside the same Arrow batches that are only handed over.

One Spark session for all: the floor's source yields batches that lie ready in the page cache, ours
reads, verifies and decodes them. Then two partitions beside one, and what a Python worker needs.
All of that of messages of one size, and of uneven ones.
"""

import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import pyarrow as pa

import stratamq
from stratamq.errors import StrataError
from stratamq_bench import child
from stratamq_bench.report import Bar, Case, Floor, at_least
from stratamq_bench.streaming import FilledStore, fill

SCAN_BAR, PARTITIONS_BAR = 0.5, 1.6
WORKER_MB = 500
PARTITIONS = 2
SEGMENT_BYTES = 1 << 30
"""RocketMQ's: all that is measured is in one segment, which no worker may hold whole."""


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int
    body: int
    messages: int


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. Raises StrataError."""
    if shutil.which("java") is None:
        raise StrataError("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    return [*_measure(directory / "even", options), *_measure(directory / "uneven", options)]


def _measure(directory: Path, options: Options) -> list[Case]:
    """The cases of one kind of messages, which the directory is named after."""
    kind, batches = directory.name, directory / "batches"
    directory.mkdir()
    how = {"uneven": kind == "uneven"}
    store = fill(directory, options.messages, options.body, SEGMENT_BYTES, **how)
    write_batches(store, batches)
    how = {"root": store.root, "messages": store.messages, "log_bytes": store.log_bytes}
    found = child.run("spark_client.scan", **how, batches=batches, rounds=options.rounds)
    if found["partitions"] != {"two": 2, "one": 1}:
        raise StrataError(f"other partitions than were asked for: {found['partitions']}")
    rates = {
        name: [store.messages / seconds for seconds in times]
        for name, times in found["seconds"].items()
    }
    handed = [fmean(pair) for pair in pairwise(rates["handed"])]
    one = Floor("one partition", median(rates["one"]))
    peak = found["worker_peak_mb"]
    return [
        _case(
            f"Spark scan, all columns, {kind}, {options.body} B",
            rates["two"],
            Floor("batches handed over", median(rates["handed"])),
            median(rate / floor for rate, floor in zip(rates["two"], handed, strict=True)),
            SCAN_BAR,
            options,
        ),
        _case(
            f"two partitions, {kind}",
            rates["two"],
            one,
            median(two / one for two, one in zip(rates["two"], rates["one"], strict=True)),
            PARTITIONS_BAR,
            options,
        ),
        Case(
            case=f"a Python worker's peak memory, {kind}",
            messages_per_s=median(rates["two"]),
            bytes_per_s=median(rates["two"]) * options.body,
            floor=Floor(f"{WORKER_MB} MB", 0.0),
            ratio=peak / WORKER_MB,
            bars=(Bar("ratio", "at most", 1.0),),
            pss_mb=peak,
            note=f"{peak:.0f} MB at most, in a segment of {SEGMENT_BYTES >> 20} MiB",
        ),
    ]


def _case(
    name: str,
    rates: list[float],
    floor: Floor,
    ratio: float,
    bar: float,
    options: Options,
) -> Case:
    return Case(
        case=name,
        messages_per_s=median(rates),
        bytes_per_s=median(rates) * options.body,
        floor=floor,
        ratio=ratio,
        bars=at_least(bar),
        messages=options.messages * len(rates),
    )


def write_batches(store: FilledStore, directory: Path) -> None:
    """The store's batches, in as many files as there are partitions."""
    directory.mkdir()
    scan = stratamq.scan(store.root)
    writers = [
        pa.ipc.new_file(str(directory / f"{number}.arrow"), scan.schema)
        for number in range(PARTITIONS)
    ]
    for number, batch in enumerate(scan):
        writers[number % PARTITIONS].write_batch(batch)
    for writer in writers:
        writer.close()
