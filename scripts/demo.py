"""`make demo`: the flights that left New York in 2013 go through a whole broker and come back.

Every flight is a message. In the middle of sending the log service is killed; the producer sends
what was not answered again, and nothing is stored twice. Then everything is read back and compared
byte for byte, by queue, by key, by time.
Exit code 0: every comparison holds; 1: one does not; 130: Ctrl-C.
"""

import itertools
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from demo_broker import DEADLINE_S, Broker
from demo_checks import TOPIC, Ledger, ReadBack, compare_answer, unique_key
from demo_flights import Flight, busiest_aircraft, busiest_hour
from demo_program import main
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from stratamq.client import Client, Delivery, Topic
from stratamq.errors import StrataError, UnavailableError

QUEUES = 8
PROGRESS_EVERY = 1000
POWER_LOSS = (
    "The kill shows that a process may die at any instruction. It shows nothing about power loss: "
    "the page cache survives a kill. That is `make torture`'s job."
)


@dataclass(slots=True)
class Step:
    """A row of the final table. `faults` None: nothing is compared in it. `note` is for the line
    that tells of the step as it ends."""

    what: str
    count: int
    seconds: float
    rated: bool = False
    note: str = ""
    faults: list[str] | None = None
    good: str = "equal"
    """What it is called when there is no fault."""


@dataclass(slots=True)
class Outcome:
    steps: list[Step] = field(default_factory=list)
    acknowledged_before_kill: int = 0
    unanswered: int = 0
    sent_again: int = 0
    duplicates: int = 0
    acknowledged_and_missing: int = 0

    @property
    def faults(self) -> list[str]:
        return [fault for step in self.steps for fault in step.faults or ()]


class Demo:
    """One run over one broker. Steps are added to `outcome` as they end."""

    def __init__(self, broker: Broker, flights: Sequence[Flight], console: Console) -> None:
        self.outcome = Outcome()
        self._broker = broker
        self._flights = flights
        self._console = console
        self._ledger = Ledger()

    def run(self) -> None:
        with self._broker.client() as client:
            self._start(client)
            self._send_and_kill(client)
            self._send_the_rest(client)
            self._wait_for_followers(client)
            self.read_and_query(client)

    def read_and_query(self, client: Client) -> None:
        """Everything by queue, one aircraft by key, one hour by time; compared with what was
        sent."""
        readback = self._read_back(client)
        if not readback.differences:
            self._find_aircraft(client, readback)
            self._find_hour(client, readback)

    def _start(self, client: Client) -> None:
        began = time.perf_counter()
        client.admin.put_topic(Topic(TOPIC, QUEUES, QUEUES))
        client.admin.dispatch_state()
        client.admin.index_state()
        self._done(Step("start log, dispatcher, index", 3, _since(began)))

    # --- sending ---

    def _send_and_kill(self, client: Client) -> None:
        """Send until half of it is on its way, kill the log, wait until all of it is answered."""
        half = range(len(self._flights) // 2)
        killed_at: list[float] = []
        outcome = self.outcome

        def kill(acknowledged: int) -> None:
            outcome.acknowledged_before_kill = acknowledged
            killed_at.append(time.perf_counter())
            killed = self._broker.kill("commitlog")
            self._broker.wait_for_successor("commitlog", killed)
            client.log_state()
            killed_at.append(time.perf_counter())

        began = time.perf_counter()
        self._send(client, half, at_end=kill)
        outcome.unanswered = len(self._ledger.to_send_again)
        outcome.sent_again = len(half) - outcome.acknowledged_before_kill - outcome.unanswered
        note = (
            f"then SIGKILL to the log: {outcome.acknowledged_before_kill:,} acknowledged before, "
            f"{outcome.sent_again:,} sent again by the producer"
        )
        away_s = killed_at[1] - killed_at[0]
        self._done(Step("send the first half", len(half), _since(began) - away_s, True, note))
        self._done(Step("recover the log", 1, away_s))

    def _send_the_rest(self, client: Client) -> None:
        again = self._ledger.to_send_again
        numbers = [*again, *range(len(self._flights) // 2, len(self._flights))]
        began = time.perf_counter()
        self._send(client, numbers)
        faults = []
        if set(self._ledger.acknowledged.values()) != set(range(len(self._flights))):
            faults.append("not every flight was acknowledged in the end")
        note = f"{len(again):,} of them by hand for the second time" if again else ""
        what, good = "send the rest", "complete"
        self._done(Step(what, len(numbers), _since(began), True, note, faults, good))

    def _send(
        self, client: Client, numbers: Sequence[int], at_end: Callable[[int], None] | None = None
    ) -> None:
        """Send these flights; the ledger has how each ended. `at_end` is called with the number of
        answers when all are given to the producer, the last ones not yet answered."""
        deliveries: list[Delivery] = []
        answers = itertools.count()
        producing = client.producer(on_result=lambda _: next(answers))
        with producing as producer, self._bar("sending", len(numbers)) as advance:
            for sent, number in enumerate(numbers, 1):
                flight = self._flights[number]
                deliveries.append(
                    producer.send(
                        TOPIC,
                        flight.body,
                        tag=flight.origin,
                        keys=flight.keys,
                        unique_key=unique_key(number),
                    )
                )
                if sent % PROGRESS_EVERY == 0:
                    advance(PROGRESS_EVERY)
            if at_end is not None:
                deliveries[0].result(DEADLINE_S)  # at least one batch is acknowledged before
                at_end(next(answers))
            for number, delivery in zip(numbers, deliveries, strict=True):
                self._settle(number, delivery)

    def _settle(self, number: int, delivery: Delivery) -> None:
        ledger = self._ledger
        try:
            ledger.take(number, delivery.result(DEADLINE_S))
        except UnavailableError as error:
            perhaps = error.fields.get("perhaps_stored")
            (ledger.unanswered if perhaps else ledger.not_sent).add(number)

    # --- reading ---

    def _wait_for_followers(self, client: Client) -> None:
        began = time.perf_counter()
        end = client.log_state().appended_offset
        pause = 0.0
        for state in (client.admin.dispatch_state, client.admin.index_state):
            while state().applied_offset < end:
                pause = min(0.1, pause + 0.005)
                time.sleep(pause)
        self._done(Step("queues and index catch up", 2, _since(began)))

    def _read_back(self, client: Client) -> ReadBack:
        began = time.perf_counter()
        readback = ReadBack(self._flights)
        queues = {queue.queue_id: queue for queue in client.queues(TOPIC)}
        total = sum(queue.max_offset - queue.min_offset for queue in queues.values())
        with (
            client.consume(TOPIC) as messages,
            self._bar("reading", total) as advance,
        ):
            for count, message in enumerate(messages, 1):
                readback.take(message)
                if count % PROGRESS_EVERY == 0:
                    advance(PROGRESS_EVERY)
        seconds = _since(began)
        faults = readback.compare(self._ledger)
        count = len(readback.numbers)
        if count != total:
            faults.append(f"{count} messages were read, the queues hold {total}")
        self.outcome.duplicates = readback.duplicates
        self.outcome.acknowledged_and_missing = len(readback.missing(self._ledger))
        what = f"read {len(queues)} queues, byte for byte"
        self._done(Step(what, count, seconds, True, faults=faults))
        return readback

    def _find_aircraft(self, client: Client, readback: ReadBack) -> None:
        tail = busiest_aircraft(self._flights)
        expected = readback.places_with_key(tail)
        began = time.perf_counter()
        found = client.query_key(TOPIC, tail, max_messages=10_000).messages
        seconds = _since(began)
        count, faults = compare_answer(found, expected, self._flights)
        self._done(Step(f"aircraft {tail} by key", count, seconds, faults=faults))

    def _find_hour(self, client: Client, readback: ReadBack) -> None:
        hour = busiest_hour(self._flights)
        begin_ms, end_ms = readback.span_of_hour(hour)
        expected = readback.places_stored_between(begin_ms, end_ms)
        of_hour = sum(flight.hour == hour for flight in self._flights)
        began = time.perf_counter()
        found = list(client.between(TOPIC, begin_ms, end_ms))
        seconds = _since(began)
        count, faults = compare_answer(found, expected, self._flights)
        note = f"stored within {end_ms - begin_ms + 1} ms; {of_hour} flights and what came between"
        step = Step(f"hour {hour[:-7]} by time", count, seconds, False, note, faults)
        self._done(step)

    # --- shown ---

    def _done(self, step: Step) -> None:
        self.outcome.steps.append(step)
        note = f" [dim]({step.note})[/]" if step.note else ""
        bad = f" [red]{'; '.join(step.faults)}[/]" if step.faults else ""
        self._console.print(f"[dim]{step.seconds:6.2f} s[/]  {step.what}{note}{bad}")

    def _bar(self, what: str, total: int) -> "_Bar":
        return _Bar(self._console, what, total)


class _Bar:
    """A progress bar where there is a terminal."""

    def __init__(self, console: Console, what: str, total: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        shown = console.is_terminal
        self._progress = Progress(*columns, console=console, transient=True, disable=not shown)
        self._task = self._progress.add_task(what, total=total)

    def __enter__(self) -> Callable[[int], None]:
        self._progress.start()
        return lambda count: self._progress.advance(self._task, count)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()


def _since(began: float) -> float:
    return time.perf_counter() - began


def steps_table(outcome: Outcome) -> Table:
    table = Table(title="What happened", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("step", no_wrap=True)
    for title in ("count", "seconds", "per second"):
        table.add_column(title, justify="right")
    table.add_column("compared")
    for step in outcome.steps:
        rated = step.rated and step.seconds > 0
        verdict = "[red]DIFFERENT[/]" if step.faults else f"[green]{step.good}[/]"
        table.add_row(
            step.what,
            f"{step.count:,}",
            f"{step.seconds:.2f}",
            f"{step.count / step.seconds:,.0f}" if rated else "",
            "" if step.faults is None else verdict,
        )
    return table


def print_tables(outcome: Outcome, console: Console) -> None:
    console.print(steps_table(outcome))
    kill = Table(title="The log was killed during the run", title_justify="left", box=SIMPLE_HEAD)
    kill.pad_edge = False
    kill.add_column("flights")
    kill.add_column("count", justify="right")
    kill.add_row("acknowledged before", f"{outcome.acknowledged_before_kill:,}")
    kill.add_row("unanswered, resent by the producer", f"{outcome.sent_again:,}")
    kill.add_row("abandoned, possibly stored", f"{outcome.unanswered:,}")
    kill.add_row("stored twice", f"{outcome.duplicates:,}")
    missing = outcome.acknowledged_and_missing
    kill.add_row("acknowledged and missing", f"[{'red' if missing else 'green'}]{missing:,}[/]")
    console.print(kill)
    console.print(POWER_LOSS, style="dim")


def run(place: Path, flights: Sequence[Flight], options: Namespace, console: Console) -> Outcome:
    console.print(f"read {len(flights):,} flights")
    with Broker(place / "store") as broker:
        demo = Demo(broker, flights, console)
        try:
            demo.run()
        except StrataError as error:
            raise StrataError(f"{error}\n{broker.last_words()}") from error
        began = time.perf_counter()
        code = broker.stop()
        faults = [f"`stratamq up` ended with exit code {code}"] if code else []
        step = Step("stop them", 3, _since(began), faults=faults, good="clean")
        demo.outcome.steps.append(step)
    return demo.outcome


if __name__ == "__main__":
    sys.exit(main(__doc__, run, print_tables, asdict))
