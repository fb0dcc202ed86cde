"""A slave's side of replication: a master's bytes at their own offsets, its queue offsets.

The queue offsets are of queues of which the slave has no message (spec 11.6): the master had
deleted them before this slave joined. The table is taken once the log has reached the end that it
is for: then every message from the slave's minimum to there is here, and a queue that is not known
has all its messages below, so that it continues at the table's offset. Known queues keep their own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stratamq.errors import InvalidRequestError, NotWritableError, StrataError, UnavailableError
from stratamq.formats.generation_number import term_of
from stratamq.formats.log_state import Role
from stratamq.formats.numbers import INT32_MAX, INT64_MAX, NextOffset
from stratamq.formats.topics import MAX_V2_TOPIC_BYTES
from stratamq.store.queue_snapshot import QueueTable
from stratamq_commitlog.log_state import LogOffsets, StateCell
from stratamq_commitlog.replica.follow_hub import FollowHub
from stratamq_commitlog.replica.high_water_mark import HighWaterMark
from stratamq_commitlog.replica.master_confirmed import MasterConfirmed
from stratamq_commitlog.write.appender import Appender
from stratamq_commitlog.write.group_commit import GroupCommit
from stratamq_commitlog.write.pending_items import DataItem
from stratamq_commitlog.write.segment_set import SegmentSet
from stratamq_commitlog.write.topic_table import TopicTable
from stratamq_commitlog.write.write_gate import WriteGate


@dataclass(slots=True)
class SlaveData:
    """Appends the master's data to one open log."""

    states: StateCell
    offsets: LogOffsets
    segments: SegmentSet
    gate: WriteGate
    appender: Appender
    commit: GroupCommit
    hub: FollowHub
    master_confirmed: MasterConfirmed
    high_water_mark: HighWaterMark
    wake: Callable[[], None]
    queues_learned: Callable[[], None]
    topics: TopicTable
    followers_lack_queues: bool = False
    """A queue table brought queues that followers have not heard of."""

    def append(
        self,
        generation: int,
        offset: int,
        data: bytes | memoryview,
        done: Callable[[StrataError | None], None],
        master_confirmed: int | None = None,
    ) -> None:
        """Whole frames of one segment at a time; `done` once they are as safe as the flush setting
        requires. `master_confirmed`: how far the master has confirmed, None: not known; it may come
        without data."""
        refusal = self.refusal(generation)
        if refusal is not None:
            done(refusal)
            return
        if master_confirmed is not None:
            self.master_confirmed.learn(master_confirmed)
        if not data:
            self.high_water_mark.advance()
            done(None)
            return
        if not self.segments.offsets and not self.appender.waiting:
            self._begin_at(offset)
        self.appender.enqueue(DataItem(offset, data, done, len(data)))
        self.wake()

    def refusal(self, generation: int) -> StrataError | None:
        """Why no bytes of a master's `generation` are taken now."""
        state, shut = self.states.now, self.gate.shut()
        if not state.is_slave:
            return NotWritableError("only a slave takes a master's bytes", "role")
        if generation != state.generation:
            return NotWritableError(f"the log is in generation {state.generation}", "generation")
        if term_of(generation) < state.assigned.term:
            return NotWritableError(self._promised(), "term")
        if self.states.histories_pending:
            return UnavailableError("the log takes over another history")
        return UnavailableError(shut) if shut else None

    def _promised(self) -> str:
        assigned = self.states.now.assigned
        to = f" was promised to {assigned.candidate}" if assigned.candidate else " is known"
        return f"term {assigned.term}{to}: no bytes of a master of a lower term are taken"

    def _begin_at(self, offset: int) -> None:
        """An empty slave's log begins where its master's bytes do: at a segment's start."""
        offsets = self.offsets
        if offset % self.segments.segment_bytes == 0 and offset > offsets.appended:
            self.hub.end_all()
            offsets.minimum = offsets.appended = offsets.flushed = offset
            offsets.confirmed = offsets.replicable = offset
            self.appender.appended = self.commit.flushed = offset

    def learn_queues(
        self, generation: int, end: int, table: Iterable[NextOffset], *, more: bool
    ) -> int:
        """Take what is not known here; how many queues that were. In the next snapshot, and known
        to the followers, which look at the table when they open, unless `more` pages are to come.

        InvalidRequestError for what can be no table; NotWritableError when this log is no slave, in
        another generation, or has not come so far.
        """
        offered, state = _checked(table), self.states.now
        if state.role is not Role.SLAVE:
            raise NotWritableError("only a slave takes a master's queue offsets", "role")
        if generation != state.generation:
            raise NotWritableError(f"the log is in generation {state.generation}", "generation")
        if self.offsets.appended < end:
            raise NotWritableError(
                f"the log ends at {self.offsets.appended}, the table is for {end}", "behind"
            )
        known = self.appender.queues
        new = {queue: following for queue, following in offered.items() if queue not in known}
        if new:
            known.set(new)
            self.topics.discover(known.undiscovered())
            self.queues_learned()
            self.followers_lack_queues = True
        if self.followers_lack_queues and not more:
            self.followers_lack_queues = False
            self.hub.end_all()
        return len(new)


def _checked(table: Iterable[NextOffset]) -> QueueTable:
    offered: QueueTable = {}
    for topic, queue_id, following in table:
        if not topic or len(topic.encode()) > MAX_V2_TOPIC_BYTES:
            raise InvalidRequestError(f"{topic[:160]!r} is no topic")
        if not 0 <= queue_id <= INT32_MAX or not 0 <= following <= INT64_MAX:
            raise InvalidRequestError(f"{topic[:160]!r}: queue {queue_id} at {following}")
        offered[topic, queue_id] = following
    return offered
