"""The figures of a log as plain rows: small enough for a page, whatever the log's size."""

from dataclasses import dataclass, field
from typing import Any

Rows = list[dict[str, Any]]

BUCKETS_MS = (
    1_000,
    5_000,
    10_000,
    60_000,
    300_000,
    900_000,
    3_600_000,
    6 * 3_600_000,
    86_400_000,
    7 * 86_400_000,
    30 * 86_400_000,
)
MAX_BUCKETS = 120


@dataclass(slots=True)
class Figures:
    """Names of columns are those of `stats.tables`."""

    log: str
    begin: int
    end: int
    bucket_ms: int = BUCKETS_MS[0]
    topics: Rows = field(default_factory=list)
    times: Rows = field(default_factory=list)
    sizes: Rows = field(default_factory=list)
    tags: Rows = field(default_factory=list)
    keys: Rows = field(default_factory=list)
    producers: Rows = field(default_factory=list)
    gaps: Rows = field(default_factory=list)
    silences: Rows = field(default_factory=list)


def bucket_for(span_ms: int) -> int:
    """The shortest stretch of time of which a page can show all."""
    fitting = (bucket for bucket in BUCKETS_MS if span_ms < bucket * MAX_BUCKETS)
    return next(fitting, BUCKETS_MS[-1])
