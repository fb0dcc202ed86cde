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
    """The first message stored at this time or later."""

    timestamp_ms: int


Start = str | int | datetime | AtTime
"""`earliest`, `latest`, an offset for every queue, a negative number (that many messages before the
end of every queue), or a time (a naive datetime is local time, as on the command line)."""

Until = int | datetime | AtTime
"""Where to end in each queue: before an offset, or before messages stored at a time or later."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The options of `Client.consume`."""

    queues: Collection[int] | None = None
    """Queue numbers, at each broker; None: all."""
    offset: Start = EARLIEST
    """Where to begin in a queue without an offset committed by the group."""
    until: Until | None = None
    """Where to end in each queue; None: where the queue ends now."""
    tags: Iterable[str] = ()
    """Read only messages with one of these tags; empty: all."""
    follow: bool = False
    """Continue with messages, topics and queues that come later."""
    group: str | None = None
    """Begin at this group's committed offsets, and commit the messages taken."""
    max_bytes: int = 0
    """The largest answer; 0: the broker decides."""
    retry_timeout_s: float | None = 30.0
    """How long to wait for a service that is away; None, and every reader that follows: forever."""
    refresh_s: float = 30.0
    """How often a reader that follows looks for new topics, queues and brokers."""
    commit_interval_s: float = 5.0
    on_interruption: Callable[[StrataError | None], None] | None = None
    """Called with the error when a wait for a service begins, and with None when messages come
    again."""
    client_id: str | None = None
    """The reader's name among the members of its group; None: HOST@PROCESS#NUMBER."""
    acknowledged: bool = False
    """Commit only what the caller has acknowledged."""

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
