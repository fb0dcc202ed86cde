"""Every case by its name, with what it is held to: the table that `stratamq bench` works through.

What measures is imported when a case is run.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

from stratamq.errors import StrataError
from stratamq_bench.load import Mismatch
from stratamq_bench.plan import MIB, Plan
from stratamq_bench.report import Bar, Case, Failure, as_json, at_least

GROUPS = (
    "engine", "append", "follow", "queues", "pull", "latency", "recover", "replicate", "idle",
    "delivery",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One case: what is measured, by which function, and its bars."""

    name: str
    title: str
    work: str
    """`module.function` of this package: `(place, plan, **options) -> Case`."""
    bars: tuple[Bar, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.name.partition("-")[0]

    def run(self, place: Path, plan: Plan) -> Case:
        """Everything that is written is below `place`. Mismatch, StrataError."""
        module, function = self.work.split(".")
        work = getattr(import_module(f"stratamq_bench.{module}"), function)
        found: Case = work(place, plan, **self.options)
        return replace(found, case=self.name, title=self.title, bars=self.bars)


def below(measure: str, limit: float) -> Bar:
    return Bar(measure, "below", limit)


_FRESH = below("dispatch_age_ms", 1000)

ENTRIES = (
    *(
        Entry(
            f"engine-{batch}",
            f"{batch} per pass, 16 queues",
            "engine_alone.engine",
            (Bar("ratio", "at most", 1.6),),
            {"batch": batch},
        )
        for batch in (64, 256)
    ),
    Entry(
        "append-async",
        "log alone, async flush, 256 per batch",
        "appending.append",
        at_least(0.75),
    ),
    Entry(
        "append-async-default",
        "log alone, async flush, the client's default batch",
        "appending.append",
        at_least(0.75),
        {"batch": 0},
    ),
    Entry(
        "append-uneven",
        "log alone, async flush, 256 per batch, uneven messages of 64 topics",
        "appending.append",
        at_least(0.75),
        {"uneven": True},
    ),
    Entry(
        "append-sync",
        "log alone, sync flush, beside async flush in turn",
        "appending.append_sync",
        at_least(0.8),
    ),
    Entry(
        "append-unary",
        "one message a call, 64 in flight, sync flush",
        "appending.unary",
        (*at_least(0.5), below("p99_ms", 20)),
        {"in_flight": 64},
    ),
    Entry(
        "append-single",
        "client.send of 64 tasks, 64 threads and of one, with dispatcher and index",
        "appending.single_sends",
        (
            *at_least(0.8),
            Bar("threads_ratio", "at least", 0.8),
            Bar("log_us", "at most", 60.0),
            Bar("one_p50_of_a_call", "at most", 1.0),
            Bar("found_at_once", "at least", 1.0),
        ),
    ),
    Entry("follow-both", "with dispatcher and index", "following.follow", (*at_least(0.6), _FRESH)),
    Entry(
        "follow-consumer",
        "and one consumer that reads all of it",
        "following.follow",
        at_least(0.35),
        {"consumer": True},
    ),
    Entry(
        "follow-uneven",
        "with dispatcher and index, uneven messages of 64 topics",
        "following.follow",
        (*at_least(0.5), _FRESH),
        {"uneven": True},
    ),
    Entry(
        "follow-small",
        "100-byte bodies, with dispatcher and index",
        "following.follow",
        at_least(0.5),
        {"body": 100},
    ),
    Entry(
        "follow-rebuild",
        "rebuild deleted queues and index while appends continue",
        "following.rebuild",
        (*at_least(1.0), Bar("p99_times", "at most", 2.0)),
    ),
    Entry(
        "queues-topics",
        "1 000 topics in turn, 16 messages a batch, with dispatcher and index",
        "following.many_queues",
        at_least(0.25),
        {"topics": 1000, "queues": 4, "batch": 16},
    ),
    Entry(
        "queues-10000",
        "10 000 queues in turn, with dispatcher and index",
        "following.many_queues",
        (*at_least(0.2), below("dispatcher_descriptors", 1000)),
        {"topics": 10, "queues": 1000, "batch": 256},
    ),
    Entry("pull-stream", "one client, 16 interleaved queues", "following.pull", at_least(0.4)),
    Entry(
        "pull-uneven",
        "one client, uneven messages of 64 topics, one topic behind the other",
        "following.pull",
        at_least(0.25),
        {"uneven": True},
    ),
    Entry(
        "latency-append",
        "one message at a time, sync flush",
        "appending.unary",
        (below("p50_ms", 1.5),),
        {"in_flight": 1},
    ),
    Entry(
        "latency-consumer",
        "append to consumer, 1 000 messages a second",
        "following.end_to_end",
        (below("p99_ms", 20),),
    ),
    Entry("recover-scan", "recovery scan with CRC, 1 KiB", "recovering.recovery", at_least(0.7)),
    Entry(
        "recover-scan-small",
        "recovery scan with CRC, 100 bytes",
        "recovering.recovery",
        at_least(0.7),
        {"body": 100},
    ),
    Entry(
        "recover-scan-uneven",
        "recovery scan with CRC, uneven messages of 64 topics",
        "recovering.recovery",
        at_least(0.7),
        {"uneven": True},
    ),
    Entry(
        "recover-two-cores",
        "a whole recovery by two processes beside one, 1 KiB",
        "recovering.recovery",
        at_least(1.5),
        {"compare": "two cores"},
    ),
    Entry(
        "recover-two-cores-small",
        "a whole recovery by two processes beside one, 100 bytes",
        "recovering.recovery",
        at_least(1.5),
        {"compare": "two cores", "body": 100, "log_bytes": 1024 * MIB},
    ),
    Entry(
        "replicate-catch-up",
        "a new slave reads what is there",
        "replicating.catch_up",
        at_least(0.5),
    ),
    Entry(
        "replicate-sync",
        "appends under SYNC_MASTER beside ASYNC_MASTER",
        "replicating.sync",
        at_least(0.5),
    ),
    Entry(
        "replicate-single",
        "one message in flight under SYNC_MASTER beside ASYNC_MASTER",
        "replicating.single",
        (below("services_us", 7250),),
    ),
    Entry(
        "replicate-lag",
        "a slave's lag at 0.3 of floor_stream",
        "replicating.lag",
        (below("lag_ms", 1000),),
    ),
    Entry(
        "idle-broker",
        "stratamq up, nothing to do",
        "idle.idle",
        (below("cpu_percent", 2), below("pss_mb", 350), below("first_put_s", 5)),
    ),
    Entry(
        "delivery-batches",
        "shared group, 32 received and acknowledged at once, 16 workers",
        "delivering.share",
        (
            *at_least(0.4),
            Bar("bytes_per_message", "at most", 40),
            Bar("state_bytes", "at most", 16_384),
        ),
        {"batch": 32, "workers": 16},
    ),
    Entry(
        "delivery-singles",
        "shared group, one message at a time, 64 in flight",
        "delivering.share",
        (below("p99_ms", 200), Bar("state_bytes", "at most", 16_384)),
        {"batch": 1, "workers": 64},
    ),
    Entry(
        "delivery-transactions",
        "transactions of one message, 64 in flight, beside plain appends",
        "delivering.transact",
        (Bar("log_ratio", "at most", 2.5),),
    ),
    Entry(
        "delivery-delayed",
        "delayed messages that are all due",
        "delivering.deliver",
        at_least(0.5),
    ),
    Entry(
        "delivery-error",
        "10 000 messages over levels 1 to 4 and any time, beside 20 000 others a second",
        "delivering.delay_errors",
        (below("p99_ms", 200),),
    ),
    Entry(
        "delivery-standby",
        "a stream and pulls beside a delivery that has nothing to do",
        "delivering.stand_by",
        (Bar("append_cpu_ratio", "at most", 1.05), Bar("pull_cpu_ratio", "at most", 1.05)),
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


def run_all(
    entries: Sequence[Entry],
    plan: Plan,
    place: Callable[[], AbstractContextManager[Path]],
    results: Path | None,
) -> tuple[list[Case], list[Failure]]:
    """Each in a fresh directory. `results` is written after each, so that none is lost."""
    cases: list[Case] = []
    failures: list[Failure] = []
    for entry in entries:
        began = time.perf_counter()
        print(f"{entry.name}: {entry.title}", end=" … ", file=sys.stderr, flush=True)
        try:
            plan.make_ready()
            with place() as directory:
                found = entry.run(directory, plan)
        except (Mismatch, StrataError) as error:
            failures.append(Failure(entry.name, f"{type(error).__name__}: {error}"))
            outcome = "failed"
        else:
            cases.append(found)
            outcome = _verdict(found)
        print(f"{outcome} ({time.perf_counter() - began:.0f} s)", file=sys.stderr, flush=True)
        if results is not None:
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(as_json(cases, failures) + "\n")
    return cases, failures


def _verdict(case: Case) -> str:
    values = ", ".join(f"{bar.measure} {case.value_of(bar):.3g} ({bar})" for bar in case.bars)
    return f"{values} {'met' if case.met else 'NOT met'}" if case.bars else "measured"
