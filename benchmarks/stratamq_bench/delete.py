"""What an append waits while gigabytes are deleted, beside what it waits in quiet, in one run.

    fill, quiet for a while, delete, fill, quiet, delete, …

A client sends at a fixed rate all the time. Each deletion is the janitor's: `DeleteBelow`, and it
is over when the last file is gone from the directory. The bar is the issue's: p99 of the messages
that were due while a deletion ran, all rounds together, at most twice p99 of those due in quiet.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stratamq.client import Client
from stratamq.formats.file_names import offset_name
from stratamq_bench.broker import Broker, until
from stratamq_bench.load import Load, Places, put_topics
from stratamq_bench.pacing import Answers, Sending, Span, Waits
from stratamq_bench.report import Bar, Case, Floor

FILLING_BODY_BYTES = 32 << 10
PLACES = Places()
LOOK_S = 0.005
DELETION_DEADLINE_S = 120.0
SETTLE_S = 2.0
"""After filling: followers catch up, and a snapshot gets on the disk."""


@dataclass(frozen=True, slots=True)
class Options:
    seconds: float
    """How long nothing happens before each deletion."""
    rounds: int
    body: int
    rate: float
    """Messages per second."""
    deleted_bytes: int
    """In each deletion."""
    segment_bytes: int
    followers: bool


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. Raises Mismatch, StrataError."""
    rooms = ["commitlog", "dispatcher", "index"] if options.followers else ["commitlog"]
    settings = {
        "commitlog.segment_bytes": options.segment_bytes,
        "commitlog.followers": ",".join(rooms[1:]),
    }
    quiet: list[Span] = []
    deleting: list[Span] = []
    with Broker(directory, rooms, settings) as broker, broker.client() as client:
        put_topics(client, PLACES)
        _fill(client, options)
        with Sending(broker.root, options.rate, options.body, directory / "answers.npy") as sending:
            for number in range(options.rounds):
                if number:
                    _fill(client, options)
                time.sleep(SETTLE_S)
                quiet.append(Span.lasting(options.seconds))
                deleting.append(_delete(broker, client, options))
            answers = sending.stop()
    return [_case(options, answers, quiet, deleting)]


def _fill(client: Client, options: Options) -> None:
    """So much, and a little more: the segment in use stays."""
    state = client.log_state()
    kept = state.appended_offset - state.minimum_offset
    missing = options.deleted_bytes + options.segment_bytes // 8 - kept
    load, topic = Load(FILLING_BODY_BYTES), PLACES.topic_names[-1]
    with client.producer() as producer:
        for number in range(missing // FILLING_BODY_BYTES):
            producer.send(topic, load.body(number))


def _delete(broker: Broker, client: Client, options: Options) -> Span:
    """From the call until the last file is gone."""
    below = client.log_state().minimum_offset + options.deleted_bytes
    below -= below % options.segment_bytes
    first = offset_name(below)
    directory, start = broker.root / "commitlog", time.monotonic_ns()

    def gone() -> bool:
        # The rest waits for the log's own snapshot of its queues.
        minimum, _ = client.admin.delete_below(below, max_segments=1 << 16)
        return minimum >= below and min(path.name for path in directory.iterdir()) >= first

    until(gone, f"the log below {below} is not gone", DELETION_DEADLINE_S, LOOK_S)
    return Span(start, time.monotonic_ns())


def _case(
    options: Options, answers: Answers, quiet: Sequence[Span], deleting: Sequence[Span]
) -> Case:
    calm, busy = Waits.of(answers, quiet), Waits.of(answers, deleting)
    rate = busy.count / sum(span.seconds for span in deleting)
    who = "with dispatcher and index" if options.followers else "log alone"
    return Case(
        case=f"{options.rate:g} appends/s while {options.deleted_bytes / 2**30:g} GiB in segments "
        f"of {options.segment_bytes / 2**20:g} MiB are deleted, {who}",
        messages_per_s=rate,
        bytes_per_s=rate * options.body,
        floor=Floor(name="p99 in quiet", messages_per_s=options.rate),
        ratio=busy.p99 / calm.p99,
        bars=(Bar("ratio", "at most", 2.0),),
        p50_ms=busy.p50,
        p99_ms=busy.p99,
        p999_ms=busy.p999,
        messages=calm.count + busy.count,
        note=f"p50/p99/p999 in quiet {calm}, while deleting {busy}; deletions took "
        f"{', '.join(f'{span.seconds:.1f}' for span in deleting)} s",
    )
