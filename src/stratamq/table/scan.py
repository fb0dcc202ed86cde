"""`stratamq.scan`: the log as Arrow record batches, without Spark and without a service.

import stratamq
flights = stratamq.scan("data", topic="flights", columns=["keys", "body"]).to_pandas()
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from stratamq.client import connect
from stratamq.errors import InvalidRequestError, NotFoundError, OffsetOutOfRangeError
from stratamq.formats.nearest import did_you_mean
from stratamq.table.broker_reader import read_broker
from stratamq.table.decode import Decoder
from stratamq.table.log_files import open_log
from stratamq.table.part_reader import OnDamage, read_part
from stratamq.table.schema import COLUMNS
from stratamq.table.selection import Queue, Selection
from stratamq.table.tier_parts import TierDecoder, TierName
from stratamq.table.tier_scan import scan_tier
from stratamq.table.where import is_address, is_tier

Where = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Moment = datetime | int
"""A point in time: a naive datetime is local time, a number is milliseconds since 1970 UTC."""
Offsets = tuple[int, int] | Mapping[Queue, tuple[int, int]]


def scan(
    where: Where,
    *,
    topic: str | Iterable[str] | None = None,
    queues: int | Iterable[int] | None = None,
    offsets: Offsets | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    columns: Iterable[str] | None = None,
    decompress: bool = False,
    verify: bool = True,
    on_damage: OnDamage | None = None,
    tier: str | os.PathLike[str] | None = None,
    cluster: str | None = None,
    broker: str | None = None,
) -> "Scan":
    """Messages of a log as columns, in the log's order.

    `where`: a store's directory (ours or RocketMQ's), a list of segment files, or the address of a
    running broker's log service. `offsets`: queue offsets [begin, end) of every selected queue, or
    of the queues of a mapping {(topic, queue id): (begin, end)}. `since` ≤ store time < `until`.
    `columns`: of `stratamq.table.schema`, in this order. `decompress` gives bodies as producers had
    them. `verify` holds every frame against its checksums. `on_damage` is called with each damaged
    stretch, which is passed over; without it the first one raises CorruptionError.

    Of a running broker (`host:port`) the selected queues are read by
    the dispatcher, queue by queue; its services verify what they give, and `on_damage` is not
    asked.

    `tier`, a directory or an object store's URL (`s3://bucket/prefix`), is where a broker's
    messages were uploaded: of a store's directory and its tier each message is given once, those of
    the tier first, queue by queue. A tier alone is scanned as `where`. `cluster` and `broker`
    choose among several tiers in one target. What is in the tier has physical offset -1;
    `on_damage` is called with the object and the stretch in it.

    Nothing is read until batches are requested; each iteration reads the log again. Raises
    InvalidRequestError and NotFoundError at once for what cannot be scanned,
    and OffsetOutOfRangeError when retention deletes messages that are still to be read.
    """
    chosen = _columns(columns)
    selection = Selection(
        topics=_topics(topic),
        queues=_queue_ids(queues),
        offsets=_single_queues(offsets),
        all_offsets=_all_offsets(offsets),
        since_ms=None if since is None else _milliseconds(since),
        until_ms=None if until is None else _milliseconds(until),
    )
    source, name = _sources(where, tier, cluster, broker)
    return Scan(source, Decoder(chosen, decompress), selection, verify, on_damage, name)


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan that can be read, again and again. Made by `scan`."""

    _source: Where | None
    _decoder: Decoder
    _selection: Selection
    _verify: bool
    _on_damage: OnDamage | None
    _tier: TierName | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._decoder.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Record batches of a few MiB; none is empty."""
        if self._tier is not None:
            known = TierDecoder(self._decoder, self._selection, self._verify, self._on_damage)
            log = None if self._source is None else open_log(self._source)
            yield from scan_tier(self._tier, known, log)
            return
        assert self._source is not None
        if is_address(self._source):
            with connect(str(self._source)) as client:
                yield from read_broker(client, self._decoder, self._selection)
            return
        log, selection = open_log(self._source), self._selection
        for part in log.parts(*log.within(selection.since_ms, selection.until_ms)):
            try:
                yield from read_part(
                    part, self._decoder, selection, verify=self._verify, on_damage=self._on_damage
                )
            except FileNotFoundError as error:
                raise OffsetOutOfRangeError(
                    f"{part.path} was deleted before it was read: the log begins behind it by now",
                    part.segment_end,
                    log.end,
                ) from error

    def reader(self) -> pa.RecordBatchReader:
        """For whatever takes a stream of batches, `pyarrow.dataset.write_dataset` for example."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's protocol for streams: DuckDB, Polars and others read a scan by it."""
        return self.reader().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Needs pandas."""
        return self.to_arrow().to_pandas(**options)

    def to_polars(self) -> Any:
        """Needs polars."""
        import polars

        return polars.from_arrow(self.to_arrow())


def _columns(columns: Iterable[str] | None) -> tuple[str, ...]:
    chosen = tuple(COLUMNS if columns is None else columns)
    unknown = [name for name in chosen if name not in COLUMNS]
    if unknown or len(set(chosen)) < len(chosen) or not chosen:
        what = "columns must be named once, at least one"
        if unknown:
            what = f"no column {unknown[0]}{did_you_mean(unknown[0], COLUMNS)}"
        raise InvalidRequestError(f"{what}; there are {', '.join(COLUMNS)}")
    return chosen


def _sources(
    where: Where,
    tier: str | os.PathLike[str] | None,
    cluster: str | None,
    broker: str | None,
) -> tuple[Where | None, TierName | None]:
    """A log, a tier, or both."""
    if tier is None and is_tier(where):
        return None, TierName(os.fspath(where), cluster, broker)
    source = _source(where)
    if tier is None:
        if cluster or broker:
            raise InvalidRequestError("cluster and broker name a tier: give its target, tier=…")
        return source, None
    if is_address(source):
        raise InvalidRequestError(
            "a broker reads its tier itself: scan its address with topics, or its directory with "
            "tier=…"
        )
    return source, TierName(os.fspath(tier), cluster, broker)


def _source(where: Where) -> Where:
    if isinstance(where, str | os.PathLike):
        if is_address(where) or Path(where).exists():
            return where
        raise NotFoundError(f"there is no {os.fspath(where)}, and it is no address host:port")
    paths = list(where)
    if not paths:
        raise InvalidRequestError("no segment files are named")
    return paths


def _topics(topic: str | Iterable[str] | None) -> frozenset[str] | None:
    if topic is None:
        return None
    return frozenset([topic] if isinstance(topic, str) else topic)


def _queue_ids(queues: int | Iterable[int] | None) -> frozenset[int] | None:
    if queues is None:
        return None
    return frozenset([queues] if isinstance(queues, int) else queues)


def _single_queues(offsets: Offsets | None) -> dict[Queue, tuple[int, int]]:
    if not isinstance(offsets, Mapping):
        return {}
    return {queue: _range(value) for queue, value in offsets.items()}


def _all_offsets(offsets: Offsets | None) -> tuple[int, int] | None:
    return None if offsets is None or isinstance(offsets, Mapping) else _range(offsets)


def _range(value: Any) -> tuple[int, int]:
    begin, end = value
    if not (isinstance(begin, int) and isinstance(end, int) and 0 <= begin <= end):
        raise InvalidRequestError(f"{value!r} is no range of queue offsets (begin, end)")
    return begin, end


def _milliseconds(moment: Moment) -> int:
    """The first millisecond that is not before the moment."""
    if isinstance(moment, datetime):
        return -int(-moment.timestamp() * 1000 // 1)
    return moment
