"""The minimum offsets of a topic's queues, raised for good, and the deletion of a topic: all of
them at the ends of its queues. What is below a minimum is read no more.

The log is flushed first: no minimum is above what a restart finds of its queue, where it would hide
messages that come later. The bytes stay until the log's retention takes them.
"""

from collections.abc import Callable, Mapping

from stratamq.errors import InvalidRequestError, StrataError
from stratamq_commitlog.log_state import StateCell
from stratamq_commitlog.steps import Flush, Procedure
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.procedures import Procedures
from stratamq_commitlog.write.topic_table import TopicConfig, TopicTable
from stratamq_commitlog.write.write_gate import WriteGate

Done = Callable[[StrataError | None], None]
MAX_QUEUES = 1_000
"""The most queues in one topic: a page of topics, on its way to a slave, has a bound."""


def purge(
    topics: TopicTable,
    states: StateCell,
    gate: WriteGate,
    appender: Appender,
    topic: str,
    minimums: Mapping[int, int],
) -> Procedure[TopicConfig]:
    """In memory when it ends; the table of topics is to be saved then. Minimums are never lowered.

    InvalidRequestError for a minimum that is negative or beyond its queue's end, NotFoundError for
    an unknown topic, NotWritableError of a slave, UnavailableError when the flush does not end.
    """
    _check_count(topics, topic, minimums)
    for queue_id, offset in minimums.items():
        end = appender.queues.table.get((topic, queue_id), 0)
        if not 0 <= offset <= end:
            raise InvalidRequestError(
                f"queue {queue_id} of {topic} ends at {end}: its minimum cannot be {offset}"
            )
    yield Flush(appender.appended)
    _require_owner(states, gate)
    return topics.raise_minimums(topic, minimums)


def delete(
    topics: TopicTable, states: StateCell, gate: WriteGate, appender: Appender, topic: str
) -> Procedure[TopicConfig]:
    """The topic takes no message from the beginning on, and has none when this ends: all minimums
    are at the ends of its queues. In memory then; the table of topics is to be saved.

    NotFoundError for an unknown topic, InvalidRequestError for the broker's own and for one of too
    many queues, NotWritableError of a slave, UnavailableError when the flush does not end.
    """
    _require_owner(states, gate)
    topics.close(topic)
    try:
        _check_count(topics, topic, _ends(topics, appender, topic))
        yield Flush(appender.appended)
        _require_owner(states, gate)
        return topics.delete(topic, _ends(topics, appender, topic))
    finally:
        topics.open(topic)


class TopicChanges:
    """What operators take away of topics. `done(None)` when it is in memory."""

    def __init__(
        self,
        topics: TopicTable,
        states: StateCell,
        gate: WriteGate,
        appender: Appender,
        procedures: Procedures,
    ) -> None:
        self._parts = topics, states, gate, appender
        self._procedures = procedures

    def purge(self, topic: str, minimums: Mapping[int, int], done: Done) -> None:
        """Raise the minimum offsets of a topic's queues."""
        raised = purge(*self._parts, topic, minimums)
        self._procedures.run(raised, lambda _, error: done(error))

    def delete(self, topic: str, done: Done) -> None:
        """Delete a topic, with the queues that it has only now."""
        topics, _, _, appender = self._parts
        topics.discover(appender.queues.undiscovered(None))
        self._procedures.run(delete(*self._parts, topic), lambda _, error: done(error))


def _ends(topics: TopicTable, appender: Appender, topic: str) -> dict[int, int]:
    table, count = appender.queues.table, topics.queue_count(topic)
    ends = ((queue_id, table.get((topic, queue_id), 0)) for queue_id in range(count))
    return {queue_id: end for queue_id, end in ends if end}


def _check_count(topics: TopicTable, topic: str, minimums: Mapping[int, int]) -> None:
    known = dict(topics.get(topic).minimums)
    if len({*known, *minimums}) > MAX_QUEUES:
        raise InvalidRequestError(f"at most {MAX_QUEUES} queues of a topic have minimum offsets")


def _require_owner(states: StateCell, gate: WriteGate) -> None:
    now = states.now
    if now.changing or (now.is_slave and not now.recovering_tail):
        raise gate.only_master("a slave takes its topics from its master: change them")
