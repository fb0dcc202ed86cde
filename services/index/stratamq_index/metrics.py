"""What Prometheus sees of the index. Gauges are brought up to date by `observe`."""

from stratamq.service.metrics import counter, gauge, histogram
from stratamq_index.engine import IndexEngine
from stratamq_index.scrubber import Scrubber

QUERIES = counter("index_queries", "Key queries answered.")
QUERY_SECONDS = histogram("index_query_seconds", "Time from a key query to its answer.")
QUERY_MESSAGES = counter("index_query_messages", "Messages given as answers to key queries.")
REBUILDS = counter("index_rebuilds", "Rebuilds that came to their end.")
OFFSET = gauge("index_offset_bytes", "Log offsets: applied, durable, minimum, confirmed.", ["kind"])
LAG = gauge("index_lag_bytes", "Confirmed bytes of the log that are not indexed yet.")
FILES = gauge("index_files", "Index files.")
ITEMS = gauge("index_items", "Items in all index files.")
PENDING = gauge("index_pending_items", "Items that are only in memory.")
SERVING = gauge("index_serving", "1 while queries are answered.")
STOPPED = gauge("index_stopped", "1 after indexing has stopped; only a restart clears it.")
WRITE_BLOCKED = gauge("index_write_blocked", "1 while index files cannot be written.")
SCRUBBED = gauge("index_scrubbed_files", "Full files that were found right since the start.")
DAMAGED = gauge("index_damaged_files", "Full files that were found damaged since the start.")


class Observer:
    """Carries the engine's numbers into the registry."""

    def __init__(self, engine: IndexEngine, scrubber: Scrubber) -> None:
        self._engine = engine
        self._scrubber = scrubber

    def observe(self) -> None:
        engine = self._engine
        for kind in ("applied", "durable", "minimum", "confirmed"):
            OFFSET.labels(kind).set(getattr(engine, kind))
        LAG.set(max(0, engine.confirmed - engine.applied))
        records = engine.records
        FILES.set(len(records))
        ITEMS.set(sum(record.header.next_item - 1 for record in records))
        SCRUBBED.set(self._scrubber.verified)
        DAMAGED.set(self._scrubber.damaged)
        PENDING.set(engine.series.pending_items)
        SERVING.set(engine.serving)
        STOPPED.set(bool(engine.stop_reason))
        WRITE_BLOCKED.set(bool(engine.writer.blocked))
