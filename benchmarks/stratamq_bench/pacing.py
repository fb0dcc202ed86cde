"""A client at a fixed rate, in a process of its own, and what its messages waited for answers.

Time is counted from the moment a message was due: a log that stalls delays every message behind the
one it stalls, and all of them count.
"""

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stratamq.client import Credentials, SendResult, SendStatus, TlsFiles, connect_async
from stratamq.errors import StrataError
from stratamq_bench.broker import START_TIMEOUT_S
from stratamq_bench.child import Child
from stratamq_bench.load import Load, Mismatch, Places

WARM_UP_MESSAGES = 200

Answers = NDArray[np.int64]
"""Two columns: when a message was due, and what it waited for its answer, ns of the machine's
monotonic clock."""


@dataclass(frozen=True, slots=True)
class Span:
    """Moments of the machine's monotonic clock, ns."""

    start: int
    end: int

    @classmethod
    def lasting(cls, seconds: float) -> "Span":
        """Wait so long; return when that was."""
        start = time.monotonic_ns()
        time.sleep(seconds)
        return cls(start, time.monotonic_ns())

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1e9

    def of(self, answers: Answers) -> Answers:
        """What the messages waited that were due in it."""
        due = answers[:, 0]
        waits: Answers = answers[(due >= self.start) & (due < self.end), 1]
        return waits


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the messages that were due in some spans waited, in ms."""

    p50: float
    p99: float
    p999: float
    count: int

    @classmethod
    def of(cls, answers: Answers, spans: Sequence[Span]) -> "Waits":
        """StrataError when no message was due then."""
        waits = np.concatenate([span.of(answers) for span in spans])
        if not len(waits):
            raise StrataError("no message was due: the rate is too low for so short a time")
        p50, p99, p999 = (float(part) for part in np.percentile(waits, (50, 99, 99.9)) / 1e6)
        return cls(p50, p99, p999, len(waits))

    def __str__(self) -> str:
        return f"{self.p50:.2f}/{self.p99:.2f}/{self.p999:.2f} ms ({self.count} messages)"


class Sending:
    """The client that sends all the time, to be left by `with`."""

    def __init__(
        self,
        root: Path | str,
        rate: float,
        body: int,
        answers: Path,
        credentials: Credentials | None = None,
    ) -> None:
        self._answers = answers
        shown = {}
        if credentials is not None and credentials.tls is not None:
            shown = {"ca": credentials.tls.ca, "token": credentials.token}
        how = {"root": root, "rate": rate, "body": body, "answers": answers, **shown}
        self._process = Child("pacing.send", **how)

    def __enter__(self) -> "Sending":
        self._process.line()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__()

    def stop(self) -> Answers:
        """Every message's times. StrataError when the client ended badly."""
        self._process.finish()
        answers: Answers = np.load(self._answers)
        return answers


async def send(
    root: str, rate: float, body: int, answers: str, ca: str = "", token: str = ""
) -> None:
    """Send one message after another and time every answer, until standard input ends.

    Prints `started` once answers come, and leaves `Answers` in a file.
    """
    load, (topic, *_) = Load(body), Places().topic_names
    answered: list[int] = []
    due: list[int] = []

    def on_result(result: SendResult) -> None:
        if result.status is not SendStatus.PUT_OK:
            raise Mismatch(f"message {len(answered)} was answered {result.status}")
        answered.append(time.monotonic_ns())

    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, over.set)
    shown = Credentials(TlsFiles(Path(ca)), token) if ca else None
    async with (
        connect_async(root, retry_timeout_s=START_TIMEOUT_S, credentials=shown) as client,
        client.producer(on_result=on_result, linger_ms=0, unique_keys=False) as producer,
    ):
        step_ns = int(1e9 / rate)
        started_ns = 0
        while not over.is_set():
            if len(due) == WARM_UP_MESSAGES:
                await producer.flush()
                print("started", flush=True)
            if len(due) in (0, WARM_UP_MESSAGES):
                started_ns = time.monotonic_ns() - len(due) * step_ns
            due.append(started_ns + len(due) * step_ns)
            if (early_ns := due[-1] - time.monotonic_ns()) > 0:
                await asyncio.sleep(early_ns / 1e9)
            await producer.send(topic, load.body(len(due)), queue_id=0)
        await producer.flush()
    if len(answered) != len(due):
        raise Mismatch(f"{len(due)} messages were sent, {len(answered)} answered")
    moments, ends = np.array(due[WARM_UP_MESSAGES:]), np.array(answered[WARM_UP_MESSAGES:])
    np.save(answers, np.stack([moments, ends - moments], axis=1))
