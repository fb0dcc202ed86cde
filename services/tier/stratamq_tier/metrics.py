"""What Prometheus sees of the tier. Gauges are brought up to date by `observe`."""

from collections.abc import Callable

from stratamq.service.metrics import gauge
from stratamq_tier.status import TierStatus

_BEHIND = "How far behind the log is the tier?"
_RATE = "How much goes into the tier?"
_SIZE = "What does the tier hold?"
_WRITES = "Do messages reach the tier?"
_WHOLE = "Is what was put into the tier still there?"
_COST = "What does the storage cost?"
_ERRORS = "Does the storage answer?"
_READS = "Are reads from the tier answered by the cache?"

OFFSET = gauge(
    "tier_offset_bytes", "Log offsets: committed, read, confirmed.", ["kind"], asks=_BEHIND
)
LAG = gauge(
    "tier_lag_seconds",
    "Age of the oldest message that was read and is not in the tier.",
    asks=_BEHIND,
)
WAITING_BYTES = gauge(
    "tier_waiting_bytes", "Memory of messages that wait for their upload.", asks=_BEHIND
)
WAITING = gauge("tier_waiting_messages", "Messages that wait for their upload.", asks=_BEHIND)
COMMITTED_MESSAGES = gauge(
    "tier_committed_messages", "Messages committed since the start.", asks=_RATE
)
COMMITTED_BYTES = gauge(
    "tier_committed_bytes", "Bytes of records committed since the start.", asks=_RATE
)
QUEUES = gauge("tier_queues", "Queues of which the tier has something.", asks=_SIZE)
WRITING = gauge("tier_writing", "1 while this service writes the broker's tier.", asks=_WRITES)
FAILING = gauge("tier_failing_queues", "Queues whose last upload failed.", asks=_WRITES)
LOST = gauge(
    "tier_lost_messages",
    "Messages that were in the tier, and are neither there nor in the log any more.",
    asks=_WHOLE,
)
PUT_BACKS = gauge(
    "tier_put_backs",
    "How often the tier was found to be an older copy of what it was, since the start.",
    asks=_WHOLE,
)
REQUESTS = gauge("tier_requests", "Requests to the storage since the start.", ["kind"], asks=_COST)
REQUEST_BYTES = gauge("tier_request_bytes", "Bytes of these requests.", ["kind"], asks=_COST)
REQUEST_ERRORS = gauge(
    "tier_request_errors", "Requests that had no usable answer.", ["kind"], asks=_ERRORS
)
COST = gauge("tier_cost_usd", "What the requests cost at the prices of the settings.", asks=_COST)
INDEX_ITEMS = gauge(
    "tier_index_items", "Keys of the tier's index, in files and waiting.", ["kind"], asks=_SIZE
)
INDEX_FILES = gauge("tier_index_files", "Files of the tier's key index.", asks=_SIZE)
INDEX_BEHIND = gauge(
    "tier_index_queues_behind", "Queues that are not indexed up to their end.", asks=_BEHIND
)
CACHE_BYTES = gauge("tier_cache_bytes", "Memory of messages that were read ahead.", asks=_READS)
CACHE_HITS = gauge("tier_cache_hits", "Fetches that the cache answered.", asks=_READS)
CACHE_MISSES = gauge("tier_cache_misses", "Fetches that asked the storage.", asks=_READS)


class Observer:
    """Carries the service's numbers into the registry."""

    def __init__(self, status: Callable[[], TierStatus]) -> None:
        self._status = status

    def observe(self) -> None:
        status = self._status()
        OFFSET.labels("committed").set(status.committed_offset)
        OFFSET.labels("read").set(status.read_offset)
        OFFSET.labels("confirmed").set(status.log_confirmed_offset)
        LAG.set(status.lag_ms / 1000)
        WAITING_BYTES.set(status.waiting_bytes)
        WAITING.set(status.waiting_messages)
        COMMITTED_MESSAGES.set(status.committed_messages)
        COMMITTED_BYTES.set(status.committed_bytes)
        QUEUES.set(status.queue_count)
        WRITING.set(not status.not_writing_reason)
        FAILING.set(status.failing_queues)
        LOST.set(status.lost_messages)
        PUT_BACKS.set(status.put_backs)
        for one in status.requests:
            REQUESTS.labels(one.kind).set(one.count)
            REQUEST_BYTES.labels(one.kind).set(one.bytes)
            REQUEST_ERRORS.labels(one.kind).set(one.errors)
        COST.set(sum(one.cost_usd for one in status.requests))
        INDEX_ITEMS.labels("files").set(status.index.items)
        INDEX_ITEMS.labels("waiting").set(status.index.waiting_items)
        INDEX_FILES.set(status.index.files)
        INDEX_BEHIND.set(status.index.queues_behind)
        CACHE_BYTES.set(status.cache.bytes)
        CACHE_HITS.set(status.cache.hits)
        CACHE_MISSES.set(status.cache.misses)
