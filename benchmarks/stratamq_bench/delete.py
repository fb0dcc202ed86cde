"""What an append waits while gigabytes are deleted, beside what it waits in quiet, in one run.

    fill, quiet for a while, delete, fill, quiet, delete, …

A client sends at a fixed rate all the time. Each deletion is the janitor's: `DeleteBelow`, and it
is over when the last file is gone from the directory. The bar is the issue's: p99 of the messages
that were due while a deletion ran, all rounds together, at most twice p99 of those due in quiet.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stratamq.client import Client
from stratamq.errors import StrataError
from stratamq.formats.file_names import offset_name
from stratamq_bench.broker import Broker
from stratamq_bench.load import Load, Places
from stratamq_bench.report import Bar, Case, Floor
from stratamq_bench.streaming import put_topics

FILLING_BODY_BYTES = 32 << 10
PLACES = Places()
BARS = (Bar("ratio", "at most", 2.0),)
LOOK_S = 0.005
DELETION_DEADLINE_S = 120.0
SETTLE_S = 2.0
"""After filling: followers catch up, and a snapshot gets on the disk."""

Answers = NDArray[np.int64]
"""Two columns: when a message was due, and what it waited for its answer, ns."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    seconds: float = 15.0
    """Of quiet, before each deletion."""
    rounds: int = 3
    body: int = 1024
    rate: float = 1000.0
    """Messages per second."""
    deleted_bytes: int = 4 << 30
    """In each deletion."""
    segment_bytes: int = 1 << 30
    followers: bool = True


@dataclass(frozen=True, slots=True)
class Span:
    """Moments of the machine's monotonic clock, ns."""

    start: int
    end: int

    def of(self, answers: Answers) -> Answers:
        """What the messages waited that were due in it."""
        due = answers[:, 0]
        waits: Answers = answers[(due >= self.start) & (due < self.end), 1]
        return waits


def run_delete(directory: Path, options: DeleteOptions) -> Case:
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
                start = time.monotonic_ns()
                time.sleep(options.seconds)
                quiet.append(Span(start, time.monotonic_ns()))
                deleting.append(_delete(broker, client, options))
            answers = sending.stop()
    return _case(
        options,
        quiet=np.concatenate([span.of(answers) for span in quiet]),
        during=np.concatenate([span.of(answers) for span in deleting]),
        seconds=[(span.end - span.start) / 1e9 for span in deleting],
    )


def _fill(client: Client, options: DeleteOptions) -> None:
    """So much, and a little more: the segment in use stays."""
    state = client.log_state()
    kept = state.appended_offset - state.minimum_offset
    missing = options.deleted_bytes + options.segment_bytes // 8 - kept
    load, topic = Load(FILLING_BODY_BYTES), PLACES.topic_names[-1]
    with client.producer() as producer:
        for number in range(missing // FILLING_BODY_BYTES):
            producer.send(topic, load.body(number))


def _delete(broker: Broker, client: Client, options: DeleteOptions) -> Span:
    """From the call until the last file is gone."""
    below = client.log_state().minimum_offset + options.deleted_bytes
    below -= below % options.segment_bytes
    start = time.monotonic_ns()
    deadline = start + int(DELETION_DEADLINE_S * 1e9)
    directory, minimum = broker.root / "commitlog", 0
    while minimum < below or min(path.name for path in directory.iterdir()) < offset_name(below):
        if minimum < below:
            # The rest waits for the log's own snapshot of its queues.
            minimum, _ = client.admin.delete_below(below, max_segments=1 << 16)
        if time.monotonic_ns() > deadline:
            raise StrataError(f"the log below {below} is not gone after {DELETION_DEADLINE_S} s")
        time.sleep(LOOK_S)
    return Span(start, time.monotonic_ns())


class Sending:
    """The client that sends all the time."""

    def __init__(
        self,
        root: Path | str,
        rate: float,
        body_bytes: int,
        answers: Path,
        more: Sequence[object] = (),
    ) -> None:
        self._answers = answers
        arguments = ["--root", root, "--rate", rate, "--body", body_bytes, *more]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stratamq_bench.paced_client"]
            + [str(argument) for argument in [*arguments, "--answers", answers]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Sending":
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "started\n":
            self.__exit__()
            raise StrataError(f"the client did not start: {self._output()}")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> Answers:
        """Every message's times. StrataError when the client ended badly."""
        _, output = self._process.communicate()
        if self._process.returncode:
            raise StrataError(f"the client failed: {output.strip()[-2000:]}")
        answers: Answers = np.load(self._answers)
        return answers

    def _output(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read().strip()[-2000:]


def _case(options: DeleteOptions, *, quiet: Answers, during: Answers, seconds: list[float]) -> Case:
    if not len(quiet) or not len(during):
        raise StrataError("no message was due while something was deleted")
    rate = len(during) / sum(seconds)
    who = "with dispatcher and index" if options.followers else "log alone"
    calm, busy = _milliseconds(quiet), _milliseconds(during)
    return Case(
        case=f"{options.rate:g} appends/s while {options.deleted_bytes / 2**30:g} GiB in segments "
        f"of {options.segment_bytes / 2**20:g} MiB are deleted, {who}",
        messages_per_s=rate,
        bytes_per_s=rate * options.body,
        floor=Floor(name="p99 in quiet", messages_per_s=options.rate),
        ratio=busy[1] / calm[1],
        cpu_us_per_message={},
        bars=BARS,
        p50_ms=busy[0],
        p99_ms=busy[1],
        p999_ms=busy[2],
        messages=len(quiet) + len(during),
        note=f"p50/p99/p999 in quiet {_text(calm)} ms ({len(quiet)} messages), while deleting "
        f"{_text(busy)} ms ({len(during)}); deletions took "
        f"{', '.join(f'{one:.1f}' for one in seconds)} s",
    )


def _milliseconds(waits: Answers) -> tuple[float, float, float]:
    p50, p99, p999 = np.percentile(waits, (50, 99, 99.9)) / 1e6
    return float(p50), float(p99), float(p999)


def _text(quantiles: tuple[float, float, float]) -> str:
    return "/".join(f"{one:.2f}" for one in quantiles)
