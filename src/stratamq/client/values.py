"""What goes into a client and what comes out of it: plain values, no wire types."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from stratamq.errors import StrataError
from stratamq.formats.message_status import SendStatus
from stratamq.formats.topic_types import MessageType

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be stored.

    `queue_id` None: the queues of the topic in turn. `unique_key` None: the client makes one; "":
    none is stored. `delay_level` above 0: the broker delivers the message after RocketMQ's delay of
    that level (1: 1 s, 2: 5 s, … 18: 2 h). `delay` (seconds or a timedelta) and `deliver_at` (a
    naive datetime is local time): at that time, up to a year ahead; when it has passed, at once.
    A message takes one of the three. Delayed messages go one by one. `half` is for messages of a
    transaction (`client.transaction`).
    `wait_store_ok` False takes the answer as soon as the message is in the page cache: such
    messages go one by one, not in batches.
    """

    topic: str
    body: bytes
    tag: str = ""
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=lambda: _NONE)
    queue_id: int | None = None
    unique_key: str | None = None
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    delay_level: int = 0
    half: bool = False
    wait_store_ok: bool = True
    reconsume_times: int = 0
    delay: timedelta | float | None = None
    deliver_at: datetime | None = None

    @property
    def timed(self) -> bool:
        return self.delay is not None or self.deliver_at is not None

    @property
    def alone(self) -> bool:
        """True when it cannot travel in a batch of the append stream."""
        return bool(self.delay_level > 0 or self.half or not self.wait_store_ok or self.timed)


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A message of a transaction, by which the broker finds it."""

    topic: str
    physical_offset: int
    unique_key: str


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where one message went, or why it did not.

    `message_id` (the offset message id) is known after a single send only; `error` is None exactly
    when the message is stored.
    """

    status: SendStatus
    topic: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    physical_offset: int = -1
    store_timestamp_ms: int = 0
    size: int = 0
    message_id: str = ""
    unique_key: str = ""
    error: StrataError | None = None
    broker: str = ""
    """The broker's name, like `Topic.broker`."""

    @property
    def stored(self) -> bool:
        return self.error is None

    def check(self) -> "SendResult":
        """The result itself, or its error raised."""
        if self.error is not None:
            raise self.error.fresh_copy()
        return self


class TimeBoundary(enum.Enum):
    """Which offset stands for a moment that no message was stored at."""

    LOWER = 1
    """The first that is not earlier."""
    UPPER = 2
    """The last that is not later."""
    NEAREST = 3


@dataclass(frozen=True, slots=True)
class Topic:
    """`permission`: 2 write, 4 read, 6 both."""

    name: str
    read_queue_count: int = 4
    write_queue_count: int = 4
    permission: int = 6
    ordered: bool = False
    system_flags: int = 0
    message_type: MessageType = MessageType.UNSPECIFIED
    """What the topic takes; UNSPECIFIED and MIXED: every message."""
    broker: str = ""
    """The broker's name, of a client of brokers of several names."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Offsets from `min_offset` up to, and without, `max_offset` can be read."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    newest_store_timestamp_ms: int
    broker: str = ""
    """The broker's name, like `Topic.broker`."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One entry of a consume queue."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


@dataclass(frozen=True, slots=True)
class GroupQueue:
    """How far a group has come in one queue of a topic of which it has committed something.

    `offset` is the next it will read; -1: of this queue nothing is committed, and `lag` counts all
    that it has.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    max_offset: int
    lag: int
    last_commit_timestamp_ms: int = 0
    """When the group committed something of this topic last; 0: not since the service started."""
    last_client: str = ""
    """The address that it came from."""
    lag_s: float | None = None
    """Age of the oldest message that the group has yet to read in the queue; 0: it has read all.
    None: not asked for (`with_lag_s`), or not known: the message is in the tier alone or deleted,
    or 250 ms were over for its page of 500 queues, of which those furthest behind come first."""
    loses_in_s: float | None = None
    """After so long retention deletes a message that the group has yet to read, by its age; inf: it
    stays. None: not asked for (`with_losses`), or not known."""
    broker: str = ""
    """The broker's name, like `Topic.broker`."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A client that reads with a group's name, as its broker knows it.

    Times: wall clock of the broker, in milliseconds. `topics`: the queues that it reads, ascending,
    by topic. Listed while a stream of it is open, for 5 s behind one that ended at its deadline,
    and for 45 s behind its last pull; since the dispatcher's start. Consumers by RocketMQ's
    classic protocol are listed while they are connected, with topics and no queues.
    """

    group: str
    client_id: str
    address: str
    """host:port as the broker sees it; empty over a Unix socket."""
    topics: Mapping[str, tuple[int, ...]]
    since_ms: int
    last_seen_ms: int
    last_commit_ms: int
    """0: it has committed nothing since `since_ms`."""
    streaming: bool
    broker: str = ""
    """The broker's name, like `Topic.broker`."""


@dataclass(frozen=True, slots=True)
class CleaningStep:
    """A segment [start, end) that goes, by a `reason` (expired, space, size), or that would and is
    held back by one (replicated, consumed, tiered)."""

    start_offset: int
    end_offset: int
    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class CleaningLook:
    """One look of the janitor. `kept`: the oldest segment that stays, and why, unless one is held
    back. `deleted`: files that the log let go of; none in a plan."""

    at_ms: int
    disk_used_ratio: float
    segments: int
    deletions: tuple[CleaningStep, ...]
    held: tuple[CleaningStep, ...]
    kept: CleaningStep | None
    alarm: str
    deleted: tuple[str, ...]
    minimum_offset: int


@dataclass(frozen=True, slots=True)
class JanitorState:
    """`last` is None before the first look. `policy`: the settings as a sentence. `disabled`: why
    nothing is deleted at all, empty when the policy decides."""

    last: CleaningLook | None
    deleted_segments: int
    freed_bytes: int
    failure: str
    policy: str
    disabled: str


@dataclass(frozen=True, slots=True)
class GatewayState:
    """Where RocketMQ's own clients connect, and who does. Groups are those with a connected
    client."""

    remoting_address: str
    advertised_address: str
    """The address that routes name."""
    connections: int
    consumer_groups: int
    producer_groups: int
    grpc_address: str
    """Where clients of RocketMQ 5 connect."""
    grpc_clients: int
    grpc_advertised_address: str
    """The address that their routes name, where the gateway knows several brokers."""


@dataclass(frozen=True, slots=True)
class ConsoleState:
    """Where a browser finds the pages. `sessions`: users who are logged in."""

    url: str
    sessions: int


@dataclass(frozen=True, slots=True)
class TierRequests:
    """The requests of one kind to the storage since the start of the service. `cost_usd`: at the
    prices of the settings."""

    kind: str
    count: int
    size_bytes: int
    errors: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Election:
    """Who leads a cluster of members, as one member's agent knows it. `store_problem`: why the
    election store was not read last; empty: it was. `unchanged_ms`: for so long the store's value
    is as it is, as far as this agent knows; the leader renews it, and is replaced after `ttl_ms`.
    `switchover`: the member that is to lead next. `last_action`: for people. `agents`: where the
    members' agents take calls. `problems`: what is wrong with the lead, a sentence each."""

    member: str
    store: str
    store_problem: str
    leader: str
    term: int
    unchanged_ms: int
    ttl_ms: int
    paused: bool
    switchover: str
    last_action: str
    agents: Mapping[str, str]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TierState:
    """The state of a broker's tier service. Offsets are the log's: everything below
    `committed_offset` is in the tier. `not_writing_reason` is empty while it writes. `lag_ms`: age
    of the oldest message that was read and is not in the tier. Committed messages and the cache's
    counts are since the start of the service. `queues_not_indexed`: queues whose keys are not all
    in the key index. `lost…`: messages that were in the tier and are nowhere any more;
    `lost_example` names some. `put_backs`: how often the tier was found to be an older copy of what
    it was, since the start."""

    storage: str
    not_writing_reason: str
    committed_offset: int
    log_confirmed_offset: int
    lag_ms: int
    waiting_messages: int
    waiting_bytes: int
    committed_messages: int
    committed_bytes: int
    queues: int
    failing_queues: int
    last_failure: str
    cache_bytes: int
    cache_hits: int
    cache_misses: int
    index_items: int
    index_files: int
    queues_not_indexed: int
    requests: tuple[TierRequests, ...]
    lost_messages: int = 0
    lost_queues: int = 0
    lost_example: str = ""
    put_backs: int = 0

    @property
    def request_count(self) -> int:
        return sum(one.count for one in self.requests)

    @property
    def cost_usd(self) -> float:
        return sum(one.cost_usd for one in self.requests)


@dataclass(frozen=True, slots=True)
class LogShare:
    """A part of the log, in whole segments."""

    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Retention:
    """The janitor's rule. `disabled`: why nothing is deleted at all, empty when the policy decides.
    `at_once` and `expired` are what it takes from the log, or would take if it were not disabled:
    now, and whatever the hour."""

    disabled: str
    policy: str
    at_once: LogShare
    expired: LogShare


@dataclass(frozen=True, slots=True)
class HeldSchedule:
    """Messages that another program stored and left pending: they are not delivered before
    `enable_schedule`. Of the timed ones the other program may have delivered some."""

    delayed: int
    timed: int
    halves: int
    newest_ms: int = 0
    """Store time of the newest message that the other program stored."""

    def __bool__(self) -> bool:
        return bool(self.delayed or self.timed or self.halves)


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """A message that waits for its time. `place` names it for `cancel_scheduled` and
    `deliver_scheduled_now`. `level` is RocketMQ's delay level, 0 for a time of its own. Is it
    `held`, another program stored it, and it is not delivered before `enable_schedule`."""

    place: str
    topic: str
    queue_id: int
    level: int
    due_ms: int
    held: bool
    message_id: str
    keys: str
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ScheduledMessages:
    """Messages that wait for their time, soonest first. `truncated`: there may be more."""

    messages: tuple[ScheduledMessage, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What workers of a shared group failed at too often. `place` names it for
    `replay_dead_letters`, `queue_offset` is that in the dead-letter topic, `attempts` how often it
    was handed out before it was buried, and `replays` how often it was handed out again from
    there."""

    place: str
    queue_offset: int
    origin_topic: str
    origin_message_id: str
    message_id: str
    keys: str
    attempts: int
    store_timestamp_ms: int
    replays: int


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """A page of a group's dead letters. `next_offset`: where the next one begins; 0: nowhere."""

    letters: tuple[DeadLetter, ...]
    next_offset: int


@dataclass(frozen=True, slots=True)
class DeadLetterReplay:
    """What became of a dead letter that was to be replayed. `refusal`: why it was not."""

    place: str
    refusal: str


@dataclass(frozen=True, slots=True)
class FollowerServiceState:
    """A service that follows the log. `parts`: the dispatcher's queues, the index's files, the
    delayed messages that wait in the delivery."""

    applied_offset: int
    durable_offset: int
    log_confirmed_offset: int
    parts: int
    serving: bool
    recovery_report: tuple[str, ...]
    stopped_reason: str
    needed_offset: int = 0
    """The delivery has it, while it serves: no message below waits for anything."""
