"""`make demo-spark`: the demo's log as a table.

The flights that left New York in 2013 are sent to a broker, and the broker is stopped: what follows
reads the files alone. Spark says which ten routes had the worst mean delay, and how the delay went
by the hour; DuckDB is asked the same without Spark; and both are checked against the flights
themselves. Exit code 0: all agree; 1: they do not; 130: Ctrl-C.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from demo_broker import Broker
from demo_delays import (
    Delays,
    by_duckdb,
    by_hand,
    by_spark,
    differences,
    draw,
)
from demo_flights import Flight
from demo_program import CACHE, main
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from stratamq.client import Topic
from stratamq.errors import StrataError

TOPIC = "flights"
QUEUES = 8
BAR_WIDTH = 40
WORST = 10


@dataclass(slots=True)
class Outcome:
    flights: int
    seconds: dict[str, float] = field(default_factory=dict)
    delays: Delays | None = None
    faults: list[str] = field(default_factory=list)
    picture: str = ""


def store_flights(root: Path, flights: Sequence[Flight]) -> None:
    """Every flight a message, and the services stopped. StrataError."""
    with Broker(root) as broker:
        with broker.client() as client:
            client.admin.put_topic(Topic(TOPIC, QUEUES, QUEUES))
            with client.producer() as producer:
                deliveries = [
                    producer.send(TOPIC, flight.body, tag=flight.origin, keys=flight.keys)
                    for flight in flights
                ]
            for delivery in deliveries:
                delivery.result(60.0)
        code = broker.stop()
    if code:
        raise StrataError(f"`stratamq up` ended with exit code {code}: {broker.last_words()}")


def run(place: Path, flights: Sequence[Flight], options: Namespace, console: Console) -> Outcome:
    picture: Path = options.picture
    picture.parent.mkdir(parents=True, exist_ok=True)
    outcome = Outcome(len(flights))
    root = place / "store"

    def step(what: str, work: Callable[[], Delays | None]) -> Delays | None:
        began = time.perf_counter()
        found = work()
        outcome.seconds[what] = time.perf_counter() - began
        console.print(f"[dim]{outcome.seconds[what]:6.2f} s[/]  {what}")
        return found

    step(f"store {len(flights):,} flights", lambda: store_flights(root, flights))
    expected = step("the flights themselves", lambda: by_hand(flights))
    by_name = {
        "Spark": step("Spark", lambda: by_spark(root, TOPIC)),
        "DuckDB": step("DuckDB, without Spark", lambda: by_duckdb(root, TOPIC)),
    }
    assert expected is not None
    for name, found in by_name.items():
        assert found is not None
        outcome.faults += [f"{name}: {what}" for what in differences(found, expected)]
    outcome.delays = by_name["Spark"]
    step("draw", lambda: draw(outcome.delays or expected, picture))
    outcome.picture = str(picture)
    return outcome


def print_tables(outcome: Outcome, console: Console) -> None:
    delays = outcome.delays
    assert delays is not None
    table = Table(title="The worst routes", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("route")
    for title in ("flights", "mean delay, minutes"):
        table.add_column(title, justify="right")
    for route in delays.worst_routes(WORST):
        table.add_row(route.name, f"{route.flights:,}", f"{route.mean:.1f}")
    console.print(table)
    console.print("Mean delay by the hour of departure, minutes")
    highest = max((one.mean for one in delays.hours), default=1.0)
    for one in delays.hours:
        bar = "█" * max(0, round(one.mean / max(highest, 1e-9) * BAR_WIDTH))
        console.print(f"{one.name:>5}  {bar} {one.mean:.1f}", style="cyan", highlight=False)
    console.print(f"[dim]the picture: {outcome.picture}[/]")
    if not outcome.faults:
        console.print("[green]Spark, DuckDB and the flights themselves say the same.[/]")


PICTURE = {
    "--picture": {
        "type": Path,
        "default": CACHE / "delay-by-hour.svg",
        "help": "an .svg or a .png",
    }
}

if __name__ == "__main__":
    sys.exit(main(__doc__, run, print_tables, asdict, PICTURE))
