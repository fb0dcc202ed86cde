"""The question of `make demo-spark`, asked three ways: Spark, DuckDB, and the flights themselves.

Delays are sums and counts of whole minutes, so that three programs can agree to the last digit.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_flights import Flight

LEAST_FLIGHTS = 10
"""A route with fewer flights is left out: one late flight makes no bad route."""
SHOWN = 3


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """Flights that have something in common, cancelled ones left out."""

    name: str
    flights: int
    minutes: int
    """Departure delays added up; early ones count against late ones."""

    @property
    def mean(self) -> float:
        return self.minutes / self.flights


@dataclass(frozen=True, slots=True)
class Delays:
    routes: list[Group]
    """By name: ORIGIN–DESTINATION."""
    hours: list[Group]
    """By the scheduled hour, 0 to 23."""

    def worst_routes(self, count: int) -> list[Group]:
        counted = [one for one in self.routes if one.flights >= LEAST_FLIGHTS]
        return sorted(counted, key=lambda one: (-one.mean, one.name))[:count]


def by_hand(flights: Sequence[Flight]) -> Delays:
    """From what was sent."""
    routes: dict[str, list[int]] = {}
    hours: dict[str, list[int]] = {}
    for flight in flights:
        fields = json.loads(flight.body)
        if (delay := fields["dep_delay"]) is not None:
            routes.setdefault(f"{fields['origin']}–{fields['dest']}", []).append(delay)
            hours.setdefault(f"{fields['hour']:02}:00", []).append(delay)
    return _delays(
        *(
            [(name, len(some), sum(some)) for name, some in groups.items()]
            for groups in (routes, hours)
        )
    )


def by_spark(root: Path, topic: str) -> Delays:
    """From the log's files, by the data source `stratamq`."""
    from pyspark.sql import functions as f
    from stratamq_pipeline.jobs.session import SparkOptions, spark_session

    with spark_session("demo", SparkOptions()) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        fields = "origin STRING, dest STRING, hour INT, dep_delay INT"
        log = spark.read.format("stratamq").option("subscribe", topic).load(str(root))
        flights = (
            log.select(f.from_json(f.col("body").cast("string"), fields).alias("flight"))
            .select("flight.*")
            .where("dep_delay IS NOT NULL")
            .cache()
        )
        route = f.concat_ws("–", "origin", "dest")
        hour = f.format_string("%02d:00", "hour")
        found = [
            flights.groupBy(name.alias("name"))
            .agg(f.count("*").alias("flights"), f.sum("dep_delay").alias("minutes"))
            .collect()
            for name in (route, hour)
        ]
    return _delays(*([tuple(row) for row in rows] for rows in found))


def by_duckdb(root: Path, topic: str) -> Delays:
    """From the log's files, by `stratamq.scan`; no Spark, no service."""
    import duckdb

    import stratamq

    with duckdb.connect() as connection:
        connection.register("log", stratamq.scan(root, topic=topic, columns=["body"]).reader())
        connection.execute("CREATE TABLE flights AS SELECT decode(body)::JSON AS flight FROM log")
        found = [
            connection.execute(
                f"SELECT {name}, count(*), sum((flight->>'$.dep_delay')::INT)::BIGINT "
                "FROM flights WHERE flight->>'$.dep_delay' IS NOT NULL GROUP BY 1"
            ).fetchall()
            for name in (
                "(flight->>'$.origin') || '–' || (flight->>'$.dest')",
                "printf('%02d:00', (flight->>'$.hour')::INT)",
            )
        ]
    return _delays(*found)


def _delays(
    routes: Sequence[tuple[str, int, int]], hours: Sequence[tuple[str, int, int]]
) -> Delays:
    return Delays(*(sorted(Group(*row) for row in rows) for rows in (routes, hours)))


def differences(found: Delays, expected: Delays) -> list[str]:
    """Sentences; none means equal."""
    faults = []
    for what, ours, theirs in (
        ("routes", found.routes, expected.routes),
        ("hours", found.hours, expected.hours),
    ):
        wrong = sorted(set(ours) ^ set(theirs))
        if wrong:
            shown = ", ".join(f"{one.name} {one.flights} {one.minutes}" for one in wrong[:SHOWN])
            faults.append(f"{len(wrong)} {what} differ from the flights themselves: {shown}")
    return faults


def draw(delays: Delays, path: Path) -> None:
    """Delay by hour as a picture; the name's ending says of which kind."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    names = [one.name[:2] for one in delays.hours]
    axes.bar(names, [one.mean for one in delays.hours], color="#2a7f9e")
    axes.set_title("Mean departure delay by the scheduled hour, New York 2013")
    axes.set_xlabel("hour")
    axes.set_ylabel("minutes")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
