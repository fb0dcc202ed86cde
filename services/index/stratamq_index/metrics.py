"""What Prometheus sees of the index. Gauges are brought up to date by `observe`."""

from stratamq.service.metrics import counter, gauge, histogram
from stratamq_index.engine import IndexEngine
from stratamq_index.scrubber import IndexScrubber

_QUERIES = "How many key queries come, and how long do they take?"
_BEHIND = "How far behind the log is the index?"
_SIZE = "What does the index hold?"
_DISK = "Do the index files get what is indexed?"
_SERVES = "Are key queries answered?"
_SCRUB = "Are the index files what was written?"

QUERIES = counter("index_queries", "Key queries answered.", asks=_QUERIES)
QUERY_SECONDS = histogram(
    "index_query_seconds", "Time from a key query to its answer.", asks=_QUERIES
)
QUERY_MESSAGES = counter(
    "index_query_messages", "Messages given as answers to key queries.", asks=_QUERIES
)
REBUILDS = counter("index_rebuilds", "Rebuilds that came to their end.", asks=_SIZE)
OFFSET = gauge(
    "index_offset_bytes",
    "Log offsets: applied, durable, minimum, confirmed.",
    ["kind"],
    asks=_BEHIND,
)
LAG = gauge("index_lag_bytes", "Confirmed bytes of the log that are not indexed yet.", asks=_BEHIND)
FILES = gauge("index_files", "Index files.", asks=_SIZE)
ITEMS = gauge("index_items", "Items in all index files.", asks=_SIZE)
PENDING = gauge("index_pending_items", "Items that are only in memory.", asks=_DISK)
SERVING = gauge("index_serving", "1 while queries are answered.", asks=_SERVES)
STOPPED = gauge(
    "index_stopped", "1 after indexing has stopped; only a restart clears it.", asks=_SERVES
)
WRITE_BLOCKED = gauge("index_write_blocked", "1 while index files cannot be written.", asks=_DISK)
SCRUBBED = gauge(
    "index_scrubbed_files", "Full files that were found right since the start.", asks=_SCRUB
)
DAMAGED = gauge(
    "index_damaged_files", "Full files that were found damaged since the start.", asks=_SCRUB
)


class Observer:
    """Carries the engine's numbers into the registry."""

    def __init__(self, engine: IndexEngine, scrubber: IndexScrubber) -> None:
        self._engine = engine
        self._scrubber = scrubber

    def observe(self) -> None:
        engine = self._engine
        for kind in ("applied", "durable", "minimum", "confirmed"):
            OFFSET.labels(kind).set(getattr(engine.followed, kind))
        LAG.set(max(0, engine.followed.confirmed - engine.followed.applied))
        records = engine.records
        FILES.set(len(records))
        ITEMS.set(sum(record.header.next_item - 1 for record in records))
        SCRUBBED.set(self._scrubber.verified)
        DAMAGED.set(self._scrubber.damaged)
        PENDING.set(engine.series.pending_items)
        SERVING.set(engine.followed.serving)
        STOPPED.set(bool(engine.stop_reason))
        WRITE_BLOCKED.set(bool(engine.writer.blocked))
