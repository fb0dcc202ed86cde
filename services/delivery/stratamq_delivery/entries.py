"""What the room writes into its records about one queue of a shared group."""

from dataclasses import dataclass

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
    """The group has the queue no more."""


RunsEntry = HandedOut | Completed | Buried | Moved | PassedOver
Entry = RunsEntry | Started | Stopped


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a client gives back for one message of a hand-out."""

    offset: int
    token: int
    attempt: int
    until_ms: int
