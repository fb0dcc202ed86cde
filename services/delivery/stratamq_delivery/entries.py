"""What the room writes into its records about one queue of a shared group."""

from dataclasses import dataclass
from typing import NamedTuple

from stratamq.formats.source_item import MessageSource

NOWHERE = MessageSource(0, 0)
Bounds = tuple[int, int]
"""[start, end) in offsets of the queue."""


@dataclass(frozen=True, slots=True)
class HandedOut:
    """Messages were handed to a client, hidden until `until_ms`, store time."""

    runs: tuple[Bounds, ...]
    token: int
    attempt: int
    until_ms: int
    client: str
    leased: bool


@dataclass(frozen=True, slots=True)
class Completed:
    """Messages of a hand-out were acknowledged, or buried."""

    runs: tuple[Bounds, ...]
    token: int


@dataclass(frozen=True, slots=True)
class Buried:
    """One message of a hand-out has failed too often: it is finished here, and the dead-letter
    topic of its group gets a copy. `source`, `size`: its frame in the log."""

    runs: tuple[Bounds, ...]
    token: int
    attempt: int
    source: int
    size: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Messages of a hand-out are hidden until another time; its receipts are replaced."""

    runs: tuple[Bounds, ...]
    token: int
    new: HandedOut


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Messages whose message group has an earlier one that is not finished."""

    runs: tuple[Bounds, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The group has the queue from `floor` on; everything below is finished."""

    floor: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The group has the queue no more; of no queue: it has no settings."""


@dataclass(frozen=True, slots=True)
class Configured:
    """How the group is served, on all its queues."""

    ordered: bool = False
    """Whether of each message group one message of a queue is handed out at a time."""
    attempts: int = 0
    """After which a message is buried; 0: as many as the broker's setting says."""
    enabled: bool = True
    """Whether messages are handed out."""


RunsEntry = HandedOut | Completed | Buried | Moved | PassedOver
QueueEntry = RunsEntry | Started | Stopped
Entry = QueueEntry | Configured


class Receipt(NamedTuple):
    """What a client gives back for one message of a hand-out."""

    offset: int
    token: int
    attempt: int
    until_ms: int
    source: MessageSource = NOWHERE
    """The message's place in the log."""
