"""Spark's filters as a selection: what can be decided by header columns alone, and exactly.

Python sources get filters only when `spark.sql.python.filterPushdown.enabled` is true, and a reader
that implements `pushFilters` fails when it is not: so there are two readers, and the one that takes
filters is made only where Spark asks for it.

Spark 4.3 keeps what was planned with the DataFrame that `load` gave, narrowed by the last filters
that were pushed. A later action without a filter reads the narrowed plan again, and of two
filters on one DataFrame in one query (a union, a join with itself) only the last holds: wrong rows,
without a word (a test shows it). So filters are taken only with the option
`pushDown`, by which the user declares that each `load` is filtered in one way.
"""

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from stratamq.table.schema import SCHEMA
from stratamq.table.selection import FOREVER, Selection

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND, _MICROSECOND = timedelta(milliseconds=1), timedelta(microseconds=1)
_PLANNER = "data_source_pushdown_filters.py"


def wanted_by_the_planner() -> bool:
    """Whether Spark's planner of push-down asks for a reader: there is no other sign."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_PLANNER):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def narrowed(selection: Selection, one: Filter) -> Selection | None:
    """The narrower selection; None: Spark must evaluate the filter."""
    attribute = getattr(one, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else ""
    if isinstance(one, IsNotNull):
        return selection if column in SCHEMA.names and not SCHEMA.field(column).nullable else None
    value = getattr(one, "value", None)
    if isinstance(one, EqualTo | EqualNullSafe):
        return None if value is None else _within(selection, column, [value], value, value)
    if isinstance(one, In):
        values = [item for item in value or () if item is not None]
        return _within(selection, column, values, None, None) if values else None
    if value is None:
        return None
    if isinstance(one, GreaterThan):
        return _within(selection, column, None, _above(value), None)
    if isinstance(one, GreaterThanOrEqual):
        return _within(selection, column, None, value, None)
    if isinstance(one, LessThan):
        return _within(selection, column, None, None, _below(value))
    if isinstance(one, LessThanOrEqual):
        return _within(selection, column, None, None, value)
    return None


def _within(
    selection: Selection, column: str, values: list[Any] | None, low: Any, high: Any
) -> Selection | None:
    """`column` is one of `values`, or from `low` to `high`, both included."""
    if column == "topic" and values is not None:
        topics = frozenset(values)
        known = selection.topics
        return replace(selection, topics=topics if known is None else known & topics)
    if column == "queueId" and values is not None:
        queues = frozenset(values)
        ids = selection.queues
        return replace(selection, queues=queues if ids is None else ids & queues)
    if low is None and high is None:
        return None
    if column == "queueOffset":
        return replace(selection, all_offsets=_range(selection.all_offsets, low, high))
    if column == "physicalOffset":
        return replace(selection, physical=_range(selection.physical, low, high))
    if column == "storeTimestamp":
        since = None if low is None else -(-_microseconds(low) // 1000)
        until = None if high is None else _microseconds(high) // 1000 + 1
        return replace(
            selection,
            since_ms=_tighter(max, selection.since_ms, since),
            until_ms=_tighter(min, selection.until_ms, until),
        )
    return None


def _range(known: tuple[int, int] | None, low: int | None, high: int | None) -> tuple[int, int]:
    begin, end = known or (0, FOREVER)
    begin = begin if low is None else max(begin, low)
    end = end if high is None else min(end, high + 1)
    return begin, max(begin, end)


def _tighter(choose: Any, known: int | None, new: int | None) -> int | None:
    bounds = [bound for bound in (known, new) if bound is not None]
    return choose(bounds) if bounds else None


def _above(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(microsecond=value.microsecond // 1000 * 1000) + _MILLISECOND
    return value + 1 if isinstance(value, int) else None


def _below(value: Any) -> Any:
    if isinstance(value, datetime):
        return value - _MICROSECOND
    return value - 1 if isinstance(value, int) else None


def _microseconds(moment: datetime) -> int:
    delta = moment.astimezone(UTC) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
