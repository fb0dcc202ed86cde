"""What is known of one message's life: the answer of `Lookup.where`, and its verdict."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from stratamq.client.received import ReceivedMessage
from stratamq.client.values import Unit
from stratamq.formats.log_damage import Damage
from stratamq.formats.topics import HALF_TOPIC

SHOWN_NAMES = 3


class Stage(enum.StrEnum):
    """How far one group is with one message."""

    READ = "read"
    """Its offset is behind the message; a shared group has finished it."""
    NOT_READ = "not read"
    HELD = "held"
    """A worker of a shared group has it, and it is hidden from the others."""
    READY = "ready again"
    """A worker had it and did not finish it in time."""
    DEAD = "dead letter"
    """The group gave it up: a copy is in its dead-letter topic."""
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class GroupStage:
    """One group that reads the message's topic. `offset`: the next that it reads of the queue, of a
    shared group the first that is not finished; -1: nothing is committed."""

    group: str
    stage: Stage
    offset: int
    shared: bool = False
    before: int = 0
    """Messages of the queue that the group has to read before this one."""
    worker: str = ""
    attempt: int = 0
    """How often it was handed out; 0: never, or the group is not shared."""
    until_ms: int = 0
    """Hidden from the group's other workers until then, by the store's clock."""
    dead_letter: int = -1
    """Its offset in the group's dead-letter topic; -1: it is not there."""


@dataclass(frozen=True, slots=True)
class PlaceInLog:
    """Offsets in bytes from the start of the log. `present`: the log has the message's bytes."""

    broker: str
    role: str
    present: bool
    segment: int
    """Where the segment begins; its name."""
    position: int
    """It counts from the beginning of the segment's file."""
    minimum_offset: int
    confirmed_offset: int
    flushed: bool
    generation: int
    damage: Damage | None = None
    """What the scrubber found where the message is."""


@dataclass(frozen=True, slots=True)
class PlaceInQueue:
    """`unit`: the queue's entry for the message; None: the queue has none. Offsets from
    `min_offset` up to, and without, `max_offset` can be read."""

    unit: Unit | None
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class IndexedKey:
    """Whether the index finds the message by one of its keys, and in which of its files it is."""

    key: str
    unique: bool
    found: bool
    file: str = ""


@dataclass(frozen=True, slots=True)
class MemberCopy:
    """Another broker of the cluster, and whether it has the message, as it acknowledged."""

    name: str
    acknowledged_offset: int
    has: bool
    connected: bool


@dataclass(frozen=True, slots=True)
class DeletionOutlook:
    """What becomes of the message's segment by the rule of retention. Times of the wall clock; 0:
    not known, and `obstacle` says why. A deletion comes earlier when the disk is too full."""

    start_offset: int
    end_offset: int
    newest_ms: int
    expires_ms: int
    deleted_by_ms: int
    obstacle: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Where a delayed message, or one of a transaction, went when it was delivered."""

    topic: str
    queue_id: int
    queue_offset: int


class DeliveryOutlook(NamedTuple):
    """What becomes of a message that waits. `due_ms` 0: a transaction decides, or it is not known.
    `delivered_as` None: it was not delivered yet."""

    topic: str
    due_ms: int
    delivered_as: Copy | None


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """One message's life. None, and a note that says why, of what was not to be learnt."""

    message: ReceivedMessage
    log: PlaceInLog
    queue: PlaceInQueue | None = None
    topic_exists: bool | None = None
    keys: Sequence[IndexedKey] = ()
    members: Sequence[MemberCopy] = ()
    in_tier: bool | None = None
    """None: the broker has no tier."""
    groups: Sequence[GroupStage] = ()
    """Those that have not read it come first; at most 20 that have, and 20 that have not."""
    groups_read: int = 0
    groups_not_read: int = 0
    groups_known: bool = True
    """False: the caller may not see the topic's groups, or they were not told."""
    fate: DeletionOutlook | None = None
    waits_for: str = ""
    """The topic to which a delayed message goes, or one of a transaction; "": it is neither."""
    due_ms: int = 0
    """When a delayed message goes there; 0: it is none, or that is not known."""
    delivered_as: Copy | None = None
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def hidden(self) -> str:
        """Why consumers do not get it although the broker has it; empty: they do."""
        if self.topic_exists is False:
            return "its topic was deleted"
        if self.queue is not None and self.log.present:
            if self.message.queue_offset < self.queue.min_offset:
                return f"what is before {self.queue.min_offset} in its queue was purged"
            if self.queue.unit is None:
                return "its queue does not have it yet"
        return ""

    @property
    def verdict(self) -> str:
        """One sentence, times in UTC."""
        parts = [_stored(self), _readable(self), _groups(self), _deleted(self)]
        return ", ".join(part for part in parts if part)


def _stored(found: Whereabouts) -> str:
    if found.log.damage is not None:
        return f"stored, but damaged on this broker ({found.log.damage.reason})"
    if found.log.present:
        return "stored" if found.log.flushed else "stored, but not flushed yet"
    return "in the tier alone" if found.in_tier else "deleted from the log"


def _readable(found: Whereabouts) -> str:
    if found.delivered_as is not None:
        copy = found.delivered_as
        return f"delivered as {copy.topic} queue {copy.queue_id} offset {copy.queue_offset}"
    if found.waits_for and found.message.topic == HALF_TOPIC:
        return f"of a transaction to {found.waits_for} that is not committed"
    if found.waits_for:
        when = f" on {show_moment(found.due_ms)}" if found.due_ms else ""
        return f"waiting for its delivery to {found.waits_for}{when}"
    if found.hidden:
        return f"hidden from consumers: {found.hidden}"
    return "readable" if found.log.present or found.in_tier else ""


def _groups(found: Whereabouts) -> str:
    if found.waits_for or not found.groups_known:
        return ""
    total = found.groups_read + found.groups_not_read
    if not total:
        return "no group reads its topic"
    dead = [one for one in found.groups if one.stage is Stage.DEAD]
    held = [one for one in found.groups if one.stage is Stage.HELD]
    late = [one for one in found.groups if one.stage in (Stage.NOT_READ, Stage.READY)]
    parts = []
    if dead:
        parts.append(f"given up by {_names(dead, len(dead))} (dead letters)")
    parts += [f"held by {one.worker} of {one.group} (attempt {one.attempt})" for one in held[:1]]
    if late:
        count = found.groups_not_read - len(held)
        parts.append(f"{_names(late, count)} {_have(count)} not read it")
    elif not parts:
        parts.append(f"{_names(found.groups, total)} {_have(total)} read it")
    return ", ".join(parts)


def _names(groups: Sequence[GroupStage], count: int) -> str:
    names = [one.group for one in groups[:SHOWN_NAMES]]
    if count > len(names):
        return f"{', '.join(names)} and {count - len(names)} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _deleted(found: Whereabouts) -> str:
    if found.fate is None or not found.log.present:
        return ""
    if found.fate.deleted_by_ms:
        return f"deleted on {show_moment(found.fate.deleted_by_ms)} at the latest"
    return f"kept: {found.fate.obstacle}"


def show_moment(wall_ms: int) -> str:
    """A minute of UTC, for sentences."""
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%-d %B %Y at %H:%M} UTC"
