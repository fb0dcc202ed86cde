"""What a reader reads of its topics, and how."""

import itertools
import os
import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from stratamq.client.checking import check_fields
from stratamq.errors import InvalidRequestError, StrataError

EARLIEST, LATEST = "earliest", "latest"
SHORTEST_COMMIT_INTERVAL_S = 0.01
_LONGEST_HOST = 64
"""Characters of a host name that are kept."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message that was stored at this time or later."""

    timestamp_ms: int


Start = str | int | datetime | AtTime
"""`earliest`, `latest`, an offset for every queue, a negative number: so many messages before the
end of every queue, or a moment (a naive datetime is local time, as on the command line)."""

Until = int | datetime | AtTime
"""Where each queue ends: before an offset, or before what was stored at a moment or later."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How `Client.consume` reads."""

    queues: Collection[int] | None = None
    """Queue numbers, at each broker; None: all."""
    offset: Start = EARLIEST
    """Where a queue begins that the group has committed nothing of."""
    until: Until | None = None
    """Where each queue ends, if not where it ends now."""
    tags: Iterable[str] = ()
    """Only messages with one of these; empty: all."""
    follow: bool = False
    """Go on with what comes later, and with topics and queues that appear later."""
    group: str | None = None
    """Continue at this group's committed offsets, and commit what was taken."""
    max_bytes: int = 0
    """At most so much in an answer; 0 leaves that to the broker."""
    retry_timeout_s: float | None = 30.0
    """How long a service that is away is waited for; None, and for a reader that follows: for
    ever."""
    refresh_s: float = 30.0
    """How often a reader that follows looks for new topics, queues and brokers."""
    commit_interval_s: float = 5.0
    on_interruption: Callable[[StrataError | None], None] | None = None
    """Called with the error when a wait for a service begins, and with None when something comes
    again."""
    client_id: str | None = None
    """The reader's name among the members of its group; None: HOST@PROCESS#NUMBER."""
    acknowledged: bool = False
    """Commit what the caller has acknowledged, and no more."""

    def __post_init__(self) -> None:
        check_fields(self)
        checked_start(self.offset)
        if self.follow and self.until is not None:
            raise InvalidRequestError("a reader that follows has no end: leave out follow or until")
        shortest = max(self.commit_interval_s, SHORTEST_COMMIT_INTERVAL_S)
        object.__setattr__(self, "commit_interval_s", shortest)


def checked_start(start: Start) -> str | int | AtTime:
    if isinstance(start, datetime):
        return AtTime(int(start.timestamp() * 1000))
    if isinstance(start, str) and start not in (EARLIEST, LATEST):
        raise InvalidRequestError(f"{start!r} is no place to begin: earliest, latest, a number")
    return start


def reader_name() -> str:
    """HOST@PROCESS#NUMBER: another one at every call of this process."""
    return f"{socket.gethostname()[:_LONGEST_HOST]}@{os.getpid()}#{next(_numbers)}"
