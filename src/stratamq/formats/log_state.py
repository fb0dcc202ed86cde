"""How a broker's log is at one moment: what it answers to GetStatus, and what others decide by.

The fields have the names of `GetStatusResponse`, where each is explained; `rpc.log_state` is the
codec. Offsets are in bytes from the start of the log, times of the wall clock.
"""

import enum
from dataclasses import dataclass

from stratamq.formats.generation_number import Generation
from stratamq.formats.log_damage import Damage
from stratamq.formats.members import Members


class Role(enum.Enum):
    """What a broker is to its cluster; the numbers are those of the wire."""

    ASYNC_MASTER = 1
    SYNC_MASTER = 2
    SLAVE = 3


@dataclass(frozen=True, slots=True)
class FollowerState:
    """A service that follows the log; it stays known when its connection ends."""

    name: str
    connected: bool
    applied_offset: int
    durable_offset: int
    lag_bytes: int
    durable_store_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A slave as the replication service reports it. `counts`: its acknowledgements count towards
    PUT_OK, and no two that count are the same broker; `member`: its name among the members, "" if
    it is none."""

    address: str
    acknowledged_offset: int
    connected: bool
    lag_bytes: int = 0
    lag_ms: int = 0
    counts: bool = True
    member: str = ""


@dataclass(frozen=True, slots=True)
class ScrubState:
    """How far the scrubber is, which reads and verifies full segments. Times: 0 means never."""

    position_offset: int = 0
    """Log offset up to which this pass has verified."""
    passing: bool = False
    """A pass is on."""
    pass_began_ms: int = 0
    pass_ended_ms: int = 0
    passes: int = 0
    damage: tuple[Damage, ...] = ()
    """What the newest look at each place found, in the log's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """Reasons are "" while they do not hold."""

    minimum_offset: int = 0
    appended_offset: int = 0
    flushed_offset: int = 0
    confirmed_offset: int = 0
    role: Role | None = None
    """The assigned one; None of a log that has none yet."""
    configured_role: Role | None = None
    role_reason: str = ""
    generations: tuple[Generation, ...] = ()
    term: int = 0
    promised_to: str = ""
    writable: bool = False
    not_writable_reason: str = ""
    held_reason: str = ""
    clock_doubt: str = ""
    store_time_ms: int = 0
    """Under which a message would be stored now."""
    unable_ms: int = 0
    unable_reason: str = ""
    segment_bytes: int = 0
    segment_count: int = 0
    disk_used_ratio: float = 0.0
    disk_full_in_s: int | None = None
    sync_flush: bool = False
    recovery_report: tuple[str, ...] = ()
    broker_name: str = ""
    broker_id: int = 0
    identity: int = 0
    members: Members | None = None
    member: str = ""
    rejoining: bool = False
    has_peers: bool = False
    taking_back: bool = False
    required_replicas: int = 0
    master_replication_address: str = ""
    master_address: str = ""
    master_confirmed_offset: int | None = None
    window_offset: int | None = None
    lease_required: bool = False
    lease_remaining_ms: int = 0
    lead_ended_reason: str = ""
    scrub: ScrubState = ScrubState()
    followers: tuple[FollowerState, ...] = ()
    replicas: tuple[ReplicaState, ...] = ()

    @property
    def generation(self) -> int:
        """The current one; 0 of a log that is not open yet."""
        return self.generations[-1].number if self.generations else 0

    @property
    def safe_offset(self) -> int:
        """Below here the log has its bytes as safely as its flush setting requires."""
        return self.flushed_offset if self.sync_flush else self.appended_offset

    @property
    def is_master(self) -> bool:
        return self.role in (Role.ASYNC_MASTER, Role.SYNC_MASTER)

    @property
    def lease_over(self) -> bool:
        """Whether a master may answer nothing, by its agent (commitlog.lease)."""
        by_lease = self.role is Role.ASYNC_MASTER and self.lease_required
        return bool(self.lead_ended_reason or (by_lease and not self.lease_remaining_ms))
