"""Every case by its name, with what it is held to: the table that `stratamq bench` works through.

What measures is imported when a case is run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

from stratamq_bench.plan import MIB, Plan
from stratamq_bench.report import Bar, Case, at_least

GROUPS = (
    "engine", "append", "follow", "queues", "pull", "latency", "recover", "replicate", "idle",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """`module` below `stratamq_bench.cases` has `run(place, plan, **options) -> Case`."""

    name: str
    title: str
    module: str
    bars: tuple[Bar, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.name.partition("-")[0]

    def run(self, place: Path, plan: Plan) -> Case:
        """Everything that is written is below `place`. Mismatch, StrataError."""
        module = import_module(f"stratamq_bench.cases.{self.module}")
        found: Case = module.run(place, plan, **self.options)
        return replace(found, case=self.name, title=self.title, bars=self.bars)


def below(measure: str, limit: float) -> Bar:
    return Bar(measure, "below", limit)


_AT_MOST_CPU = (Bar("ratio", "at most", 1.6),)
_FRESH = below("dispatch_age_ms", 1000)

ENTRIES = (
    Entry("engine-64", "64 per pass, 16 queues", "engine", _AT_MOST_CPU, {"batch": 64}),
    Entry("engine-256", "256 per pass, 16 queues", "engine", _AT_MOST_CPU, {"batch": 256}),
    Entry("append-async", "log alone, async flush, 256 per batch", "append", at_least(0.75)),
    Entry(
        "append-async-default",
        "log alone, async flush, the client's default batch",
        "append",
        at_least(0.75),
        {"batch": 0},
    ),
    Entry(
        "append-sync",
        "log alone, sync flush, beside async flush in turn",
        "append_sync",
        at_least(0.8),
    ),
    Entry(
        "append-unary",
        "one message a call, 64 in flight, sync flush",
        "unary",
        (*at_least(0.5), below("p99_ms", 20)),
        {"in_flight": 64},
    ),
    Entry(
        "append-single",
        "client.send of 64 tasks, 64 threads and of one, with dispatcher and index",
        "single_sends",
        (
            *at_least(0.8),
            Bar("threads_ratio", "at least", 0.8),
            Bar("log_us", "at most", 60.0),
            Bar("one_p50_of_a_call", "at most", 1.0),
            Bar("found_at_once", "at least", 1.0),
        ),
    ),
    Entry("follow-both", "with dispatcher and index", "follow", (*at_least(0.6), _FRESH)),
    Entry(
        "follow-consumer",
        "and one consumer that reads all of it",
        "follow",
        at_least(0.35),
        {"consumer": True},
    ),
    Entry(
        "follow-small",
        "100-byte bodies, with dispatcher and index",
        "follow",
        at_least(0.5),
        {"body": 100},
    ),
    Entry(
        "follow-rebuild",
        "rebuild deleted queues and index while appends continue",
        "rebuild",
        (*at_least(1.0), Bar("p99_times", "at most", 2.0)),
    ),
    Entry(
        "queues-topics",
        "1 000 topics in turn, 16 messages a batch, with dispatcher and index",
        "many_queues",
        at_least(0.25),
        {"topics": 1000, "queues": 4, "batch": 16},
    ),
    Entry(
        "queues-10000",
        "10 000 queues in turn, with dispatcher and index",
        "many_queues",
        (*at_least(0.2), below("dispatcher_descriptors", 1000)),
        {"topics": 10, "queues": 1000, "batch": 256},
    ),
    Entry("pull-stream", "one client, 16 interleaved queues", "pull", at_least(0.4)),
    Entry(
        "latency-append",
        "one message at a time, sync flush",
        "unary",
        (below("p50_ms", 1.5),),
        {"in_flight": 1},
    ),
    Entry(
        "latency-consumer",
        "append to consumer, 1 000 messages a second",
        "end_to_end",
        (below("p99_ms", 20),),
    ),
    Entry("recover-scan", "recovery scan with CRC, 1 KiB", "recover", at_least(0.7)),
    Entry(
        "recover-scan-small",
        "recovery scan with CRC, 100 bytes",
        "recover",
        at_least(0.7),
        {"body": 100},
    ),
    Entry(
        "recover-two-cores",
        "a whole recovery by two processes beside one, 1 KiB",
        "recover_two_cores",
        at_least(1.5),
    ),
    Entry(
        "recover-two-cores-small",
        "a whole recovery by two processes beside one, 100 bytes",
        "recover_two_cores",
        at_least(1.5),
        {"body": 100, "log_bytes": 1024 * MIB},
    ),
    Entry(
        "replicate-catch-up", "a new slave reads what is there", "replicate", at_least(0.5)
    ),
    Entry(
        "replicate-sync",
        "appends under SYNC_MASTER beside ASYNC_MASTER",
        "replicate_sync",
        at_least(0.5),
    ),
    Entry(
        "replicate-lag",
        "a slave's lag at 0.3 of floor_stream",
        "replicate_lag",
        (below("lag_ms", 1000),),
    ),
    Entry(
        "idle-broker",
        "stratamq up, nothing to do",
        "idle",
        (below("cpu_percent", 2), below("pss_mb", 350), below("first_put_s", 5)),
    ),
)  # fmt: skip


def chosen(groups: Sequence[str] = (), names: Sequence[str] = ()) -> list[Entry]:
    """All of these groups (none: all), of these names (none: all). KeyError for an unknown name."""
    known = {entry.name for entry in ENTRIES}
    for name in names:
        if name not in known:
            raise KeyError(name)
    return [
        entry
        for entry in ENTRIES
        if (not groups or entry.group in groups) and (not names or entry.name in names)
    ]
