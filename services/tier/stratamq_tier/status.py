"""What `GetTierStatus` shows."""

from dataclasses import dataclass, field

from stratamq_tier.indexing import IndexStatus


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of one kind since the start of the service."""

    kind: str
    count: int
    bytes: int
    errors: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """The messages that were read ahead."""

    bytes: int = 0
    hits: int = 0
    misses: int = 0


@dataclass(frozen=True, slots=True)
class TierStatus:
    """Offsets are the log's, in bytes; `lag_ms`: age of the oldest message that was read and is not
    in the tier, or for how long nothing came into it that waits; 0: everything is there."""

    storage: str
    cluster: str
    broker: str
    not_writing_reason: str
    committed_offset: int
    read_offset: int
    log_confirmed_offset: int
    lag_ms: int
    waiting_messages: int
    waiting_bytes: int
    committed_messages: int
    committed_bytes: int
    queue_count: int
    failing_queues: int
    last_failure: str
    lost_messages: int = 0
    lost_queues: int = 0
    lost_example: str = ""
    put_backs: int = 0
    requests: tuple[Requests, ...] = ()
    cache: CacheStatus = field(default_factory=CacheStatus)
    index: IndexStatus = field(default_factory=IndexStatus)
