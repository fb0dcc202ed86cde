"""What appends and pulls of the log wait while the tier hangs, compared with before.

    quiet, then the tier service is stopped (SIGSTOP) for as long, then it goes on

A client sends at a fixed rate, another pulls the newest messages at a fixed rate. The
janitor keeps the log small all the time: nothing that the tier does not have may go. Behind it the
tier must catch up, and have every message once.
"""

import signal
import threading
import time
from dataclasses import dataclass
from functools import partial
from os import kill
from pathlib import Path

import numpy as np

from stratamq.client import Client
from stratamq.errors import StrataError
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, JANITOR, TIER
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.manifests import load_manifests
from stratamq.tier.reading.verify import queues_of
from stratamq_bench.broker import Broker, until
from stratamq_bench.load import Mismatch, Places, put_topics
from stratamq_bench.pacing import Answers, Sending, Span, Waits
from stratamq_bench.plan import MIB
from stratamq_bench.report import Bar, Case, Floor

SEGMENT_BYTES = 4 * MIB
PULLS_PER_S = 50
PULLED = 16
CATCH_UP_S = 300.0


@dataclass(frozen=True, slots=True)
class Options:
    seconds: float
    """How long the tier stands still. The quiet phase is as long, a minute at most."""
    body: int
    rate: float

    @property
    def quiet_s(self) -> float:
        return min(60.0, self.seconds)


def measure(directory: Path, options: Options) -> list[Case]:
    """Everything that is written is below `directory`. Raises Mismatch, StrataError."""
    settings = {
        "commitlog.segment_bytes": SEGMENT_BYTES,
        "commitlog.followers": "dispatcher",
        "commitlog.release_timeout_ms": 0,
        "janitor.enabled": "true",
        "janitor.hold": "tiered",
        "janitor.interval_ms": 500,
        "janitor.retention_bytes": 2 * SEGMENT_BYTES,
        "tier.target": str(directory / "tier"),
        "tier.scan_interval_ms": 500,
        "tier.batch_wait_ms": 2_000,
    }
    rooms = [COMMITLOG, DISPATCHER, TIER, JANITOR]
    with Broker(directory, rooms, settings) as broker, broker.client() as client:
        put_topics(client, Places())
        with (
            Sending(broker.root, options.rate, options.body, directory / "answers.npy") as sending,
            _Pulling(broker) as pulling,
        ):
            until(partial(_has_deleted, client), "the janitor has deleted nothing", CATCH_UP_S)
            quiet = Span.lasting(options.quiet_s)
            kill(broker.pids["tier"], signal.SIGSTOP)
            try:
                durable = _durable(client)
                standing = _stand(client, options.seconds, durable)
            finally:
                kill(broker.pids["tier"], signal.SIGCONT)
            answers, pulls = sending.stop(), pulling.stop()
        began = time.monotonic()
        until(partial(_has_caught_up, client), "the tier has not caught up", CATCH_UP_S)
        caught_up_s = time.monotonic() - began
        _check(client, directory / "tier")
    return [_case(options, quiet, standing, answers, pulls, caught_up_s)]


def _has_deleted(client: Client) -> bool:
    """What the janitor has deleted is in the tier."""
    return client.log_state().minimum_offset > 0


def _has_caught_up(client: Client) -> bool:
    return client.admin.tier_state().committed_offset >= client.log_state().appended_offset


def _stand(client: Client, seconds: float, durable: int) -> Span:
    """Mismatch when the janitor deletes more than the tier has."""
    start = time.monotonic_ns()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        minimum = client.log_state().minimum_offset
        if minimum > durable:
            raise Mismatch(f"the log was deleted up to {minimum}, and the tier has {durable}")
        time.sleep(1.0)
    return Span(start, time.monotonic_ns())


def _durable(client: Client) -> int:
    return {one.name: one for one in client.log_state().followers}["tier"].durable_offset


def _check(client: Client, target: Path) -> None:
    """The tier has every queue up to the log's end, without a hole."""
    with open_storage(str(target)) as storage:
        manifests = run(
            load_manifests(run(queues_of("DefaultCluster", "broker-a"), storage)), storage
        )
    there = {one.key: one for one in manifests}
    for topic in Places().topic_names:
        for queue in client.queues(topic):
            found = there.get((topic, queue.queue_id))
            if found is None or found.end_offset != queue.max_offset or found.holes:
                raise Mismatch(f"{topic}/{queue.queue_id}: {found} is not up to {queue.max_offset}")


class _Pulling:
    """Pulls the newest messages of the queue that is sent to, and measures each time."""

    def __init__(self, broker: Broker) -> None:
        self._client = broker.client()
        self._over = threading.Event()
        self._answers: list[tuple[int, int]] = []
        self._error: StrataError | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        topic, queue_id = Places().in_turn[0]
        end = 0
        try:
            while not self._over.wait(1 / PULLS_PER_S):
                start = time.monotonic_ns()
                pulled = self._client.pull(
                    topic, queue_id, max(0, end - PULLED), max_messages=PULLED
                )
                self._answers.append((start, time.monotonic_ns() - start))
                end = pulled.max_offset
        except StrataError as error:
            self._error = error

    def stop(self) -> Answers:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise StrataError(f"a local pull failed: {self._error}")
        return np.array(self._answers, np.int64)

    def __enter__(self) -> "_Pulling":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()


def _case(
    options: Options,
    quiet: Span,
    standing: Span,
    answers: Answers,
    pulls: Answers,
    caught_up_s: float,
) -> Case:
    before, during = (Waits.of(answers, [span]) for span in (quiet, standing))
    pull_before, pull_during = (Waits.of(pulls, [span]) for span in (quiet, standing))
    rate = during.count / standing.seconds
    return Case(
        case=f"{options.rate:g} appends/s, {PULLS_PER_S} local pulls/s, the tier stands "
        f"{standing.seconds:.0f} s",
        messages_per_s=rate,
        bytes_per_s=rate * options.body,
        floor=Floor(name="p99 in quiet", messages_per_s=options.rate),
        ratio=during.p99 / before.p99,
        bars=(Bar("ratio", "at most", 2.0), Bar("pull_ratio", "at most", 2.0)),
        p50_ms=during.p50,
        p99_ms=during.p99,
        measured={
            "quiet_p99_ms": before.p99,
            "pull_p99_ms": pull_during.p99,
            "quiet_pull_p99_ms": pull_before.p99,
            "pull_ratio": pull_during.p99 / pull_before.p99,
            "caught_up_s": caught_up_s,
        },
        messages=len(answers),
        note="nothing was deleted that the tier did not have, and it has every message once",
    )
