"""`export --format iceberg --follow`: the table stays a moment behind the log, with few files.

Each round exports what is new and merges small files; once an hour, snapshots are removed that are
older than the table's property `history.expire.max-snapshot-age-ms` allows. A log or a catalog that
does not answer is asked again in the next round.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import FrameType

from pyiceberg.table import Table

from stratamq.errors import UnavailableError
from stratamq.files.port import Clock
from stratamq_pipeline.iceberg.job import IcebergExport, IcebergOptions
from stratamq_pipeline.iceberg.merging import SmallFiles
from stratamq_pipeline.iceberg.table import MAX_AGE, MAX_AGE_MS, asking_the_catalog, catalog_at
from stratamq_pipeline.jobs.summary import Progress, Summary, silent

EXPIRE_INTERVAL_MS = 3_600_000


def follow_iceberg_export(
    options: IcebergOptions,
    interval_s: float,
    stop: threading.Event,
    clock: Clock,
    progress: Progress = silent,
) -> Summary:
    """Return when `stop` is set, behind a commit. Errors as of a single run, but for
    UnavailableError."""
    with catalog_at(options.out, options.catalog) as catalog:
        export = IcebergExport(options, catalog, progress)
        small = SmallFiles(export.table, options.limits)
        small.look(_now(clock).date())
        expired_ms = 0
        while True:
            try:
                with asking_the_catalog():
                    small.note(export.run(stop.is_set))
                    fewer = small.merge()
                    if fewer:
                        progress(f"merged small files: {fewer} fewer")
                    if clock.wall_ms() - expired_ms >= EXPIRE_INTERVAL_MS:
                        expire(export.table, _now(clock))
                        expired_ms = clock.wall_ms()
            except UnavailableError as error:
                progress(f"asked again in {interval_s:g} s: {error}")
            if stop.wait(interval_s):
                return export.summary()


def expire(table: Table, now: datetime) -> None:
    """Forget snapshots that are too old. Their files stay until `iceberg-orphans` removes them."""
    age_ms = int(table.properties.get(MAX_AGE, MAX_AGE_MS))
    begin = now - timedelta(milliseconds=age_ms)
    oldest_ms = min((one.timestamp_ms for one in table.snapshots()), default=None)
    if oldest_ms is not None and oldest_ms < begin.timestamp() * 1000:
        table.maintenance.expire_snapshots().older_than(begin).commit()


@contextmanager
def stopped_by_signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set `stop`; a second one ends the process as usual."""
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def once(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in signals:
        signal.signal(number, once)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _now(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)
