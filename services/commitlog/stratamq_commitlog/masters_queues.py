"""A slave takes over the next offsets of queues of which it has no message (spec 11.6).

They are of messages that the master had deleted before this slave joined. The table is taken once
the log has reached the end that it was told for: then every message from the slave's minimum to
there is here, and a queue that is not known has all its messages below, so that it goes on at the
told offset. Queues that are known are left alone: their messages say better.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stratamq.errors import InvalidRequestError, NotWritableError
from stratamq.formats.numbers import INT32_MAX, INT64_MAX
from stratamq_commitlog.messages import Role
from stratamq_commitlog.own_state import QueueTable

if TYPE_CHECKING:
    from stratamq_commitlog.engine import CommitLog

MAX_TOPIC_BYTES = 32_767
"""The longest that a frame of version 2 can name."""

NextOffset = tuple[str, int, int]
"""topic, queue id, the queue offset that its next message gets."""


def learn(
    engine: "CommitLog", generation: int, end: int, table: Iterable[NextOffset], *, more: bool
) -> int:
    """Take what is not known here; how many queues that were. In the next snapshot, and told to
    the followers, which look at the table when they open, unless `more` pages are to come.

    InvalidRequestError for what can be no table; NotWritableError when this log is no slave, in
    another generation, or has not come so far.
    """
    told = _checked(table)
    if engine.role is not Role.SLAVE:
        raise NotWritableError("only a slave takes a master's queue offsets", "role")
    if generation != engine.generation:
        raise NotWritableError(f"the log is in generation {engine.generation}", "generation")
    if engine.offsets.appended < end:
        raise NotWritableError(
            f"the log ends at {engine.offsets.appended}, the table is for {end}", "behind"
        )
    known = engine.appender.queues
    new = {queue: following for queue, following in told.items() if queue not in known}
    if new:
        known.set(new)
        engine.discover_topics()
        engine.housekeeping.snapshot_again()
        engine.untold_queues = True
    if engine.untold_queues and not more:
        engine.untold_queues = False
        engine.hub.end_all()
    return len(new)


def _checked(table: Iterable[NextOffset]) -> QueueTable:
    told: QueueTable = {}
    for topic, queue_id, following in table:
        if not topic or len(topic.encode()) > MAX_TOPIC_BYTES:
            raise InvalidRequestError(f"{topic[:160]!r} is no topic")
        if not 0 <= queue_id <= INT32_MAX or not 0 <= following <= INT64_MAX:
            raise InvalidRequestError(f"{topic[:160]!r}: queue {queue_id} at {following}")
        told[topic, queue_id] = following
    return told
