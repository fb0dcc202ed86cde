"""`make demo-tier`: the flights of 2013 move to an S3 server and are read back from it.

A whole broker with a tier takes every flight. When all of them are in the bucket the local segments
are deleted, and everything is read again, byte for byte, by queue, key and time. Then the broker's
directory is thrown away, a new one is restored from the bucket alone, and everything is read once
more. Exit code 0: every comparison holds; 1: one does not; 130: Ctrl-C.
"""

import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from demo import Demo, Outcome, Step, steps_table
from demo_broker import Broker, run_with
from demo_checks import TOPIC
from demo_flights import Flight
from demo_program import main
from demo_s3 import BUCKET, S3Server
from rich.console import Console

from stratamq.client import Client
from stratamq.errors import StrataError

TARGET = f"s3://{BUCKET}/tier"
GROUP = "departures"
SEGMENT = 4 << 20
SETTINGS = (
    f"tier.target={TARGET}",
    "tier.allow_http=true",
    "tier.scan_interval_ms=500",
    "tier.batch_wait_ms=2000",
    "tier.consumer_offsets_interval_ms=1000",
    f"commitlog.segment_bytes={SEGMENT}",
)


class TierDemo(Demo):
    """One run over one bucket. Steps are added to `outcome` as they end."""

    def __init__(
        self, server: S3Server, place: Path, flights: Sequence[Flight], console: Console
    ) -> None:
        self._server = server
        self._store = place / "store"
        super().__init__(self._begin(), flights, console)

    def run(self) -> None:
        try:
            self._run()
        except StrataError as error:
            raise StrataError(f"{error}\n{self._broker.last_words()}") from error
        finally:
            self._broker.stop()

    def _run(self) -> None:
        with self._broker.client() as client:
            self._start(client)
            self._send_all(client)
            self._wait_for_followers(client)
            self._consume_some(client)
            self._wait_for_the_tier(client)
            self._delete_local(client)
            self.read_and_query(client)
        self._stop_broker()
        self._throw_away_and_restore()
        with self._broker.client() as client:
            self._wait_for_followers(client)
            self._compare_group(client)
            self.read_and_query(client)
        self._stop_broker()

    def _begin(self) -> Broker:
        return Broker(self._store, self._settings, self._server.environment)

    @property
    def _settings(self) -> list[str]:
        return [*SETTINGS, f"tier.endpoint={self._server.endpoint}"]

    def _send_all(self, client: Client) -> None:
        began = time.perf_counter()
        numbers = range(len(self._flights))
        self._send(client, numbers)
        faults = []
        if set(self._ledger.acknowledged.values()) != set(numbers):
            faults.append("not every flight was acknowledged")
        step = Step("send all", len(numbers), _since(began), True, "", faults, "complete")
        self._done(step)

    def _consume_some(self, client: Client) -> None:
        """A group that has read a part, to be found again."""
        self._committed = {
            (TOPIC, queue.queue_id): queue.max_offset // 2 for queue in client.queues(TOPIC)
        }
        client.commit_offsets(GROUP, self._committed)

    def _wait_for_the_tier(self, client: Client) -> None:
        began = time.perf_counter()
        end = client.log_state().appended_offset
        while (state := client.admin.tier_state()).committed_offset < end:
            time.sleep(0.05)
        while client.admin.tier_state().queues_not_indexed:
            time.sleep(0.05)
        note = f"{state.request_count:,} requests so far, {state.cost_usd:.4f} USD at S3"
        step = Step("all of it is in the bucket", len(self._flights), _since(began), False, note)
        self._done(step)

    def _delete_local(self, client: Client) -> None:
        """Every segment but the one that is written."""
        began = time.perf_counter()
        end = client.log_state().appended_offset
        below = end - end % SEGMENT
        while client.admin.delete_below(below)[0] < below:
            time.sleep(0.05)
        segments, left = below // SEGMENT, end - below
        note = f"of {end:,} bytes {left:,} stay in the segment that is written"
        self._done(Step("delete the local segments", segments, _since(began), False, note))

    def _stop_broker(self) -> None:
        began = time.perf_counter()
        code = self._broker.stop()
        faults = [f"`stratamq up` ended with exit code {code}"] if code else []
        self._done(Step("stop the broker", 6, _since(began), False, "", faults, "clean"))

    def _throw_away_and_restore(self) -> None:
        began = time.perf_counter()
        shutil.rmtree(self._store)
        command = [sys.executable, "-m", "stratamq.cli", "tier", "restore", TARGET]
        command += [str(self._store), "--segment-bytes", str(SEGMENT)]
        restored = run_with(self._server.environment, command)
        if restored.returncode:
            raise StrataError(f"stratamq tier restore: {restored.stderr[-500:]}")
        note = "the broker's directory was thrown away before"
        step = Step("restore from the bucket", len(self._flights), _since(began), True, note)
        self._done(step)
        self._broker = self._begin()

    def _compare_group(self, client: Client) -> None:
        began = time.perf_counter()
        found = client.committed_offsets(GROUP, TOPIC)
        faults = [] if found == self._committed else [f"{GROUP}: {found}, not {self._committed}"]
        self._done(Step("offsets of the group", len(found), _since(began), faults=faults))


def _since(began: float) -> float:
    return time.perf_counter() - began


def run(place: Path, flights: Sequence[Flight], options: Namespace, console: Console) -> Outcome:
    with S3Server(place / "s3") as server:
        console.print(f"[dim]        [/]  {len(flights):,} flights, {server.name}")
        demo = TierDemo(server, place, flights, console)
        demo.run()
        return demo.outcome


def show(outcome: Outcome, console: Console) -> None:
    console.print(steps_table(outcome))


def document(outcome: Outcome) -> dict[str, object]:
    return {"steps": [asdict(step) for step in outcome.steps]}


if __name__ == "__main__":
    sys.exit(main(__doc__, run, show, document))
