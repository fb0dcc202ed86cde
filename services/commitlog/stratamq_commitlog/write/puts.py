"""Check what producers send, and hand it to the appender as a whole, or return the reason not to.

Messages given as fields or as single frames are checked a few at a time, so that a large call does
not block the event loop: its caller runs the steps and yields to other tasks between them. All
messages of a call are handed over together, or, if the log has stopped taking messages meanwhile,
none.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stratamq.errors import StrataError
from stratamq.files.port import Clock
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.messages import (
    BatchDone,
    BatchResult,
    FrameBatch,
    PutDone,
    PutMessage,
    PutResult,
)
from stratamq_commitlog.write.batch_check import check_shape
from stratamq_commitlog.write.partial_batch import pieces_between
from stratamq_commitlog.write.pending_items import BatchItem, PutItem
from stratamq_commitlog.write.prepare import Prepared, Preparer, Refused, batch_refusal
from stratamq_commitlog.write.topic_check import check_topics, refused_status
from stratamq_commitlog.write.topic_table import TopicTable
from stratamq_commitlog.write.write_gate import WriteGate

STEP_MESSAGES = 32
"""So many messages are read from a request and checked at once: each takes 20 to 40 µs."""

Outcomes = list[Prepared | PutResult]


class Puts:
    """`begin` before the log opens. Single-threaded."""

    def __init__(
        self,
        config: CommitLogConfig,
        gate: WriteGate,
        topics: TopicTable,
        clock: Clock,
    ) -> None:
        self.max_batch_bytes = config.max_batch_bytes
        self._config = config
        self._gate = gate
        self._topics = topics
        self._clock = clock

    def begin(
        self,
        preparer: Preparer,
        enqueue: Callable[[PutItem | BatchItem], None],
        segment_bytes: int,
        replica_obstacle: Callable[[], StrataError | None],
    ) -> None:
        """What is taken goes to `enqueue`. `replica_obstacle`: why nothing is taken of a producer
        that requires slaves."""
        self._replica_obstacle = replica_obstacle
        self.max_batch_bytes = min(self._config.max_batch_bytes, segment_bytes - 8)
        self._preparer = preparer
        self._enqueue = enqueue

    def messages(
        self,
        messages: Iterable[PutMessage],
        all_or_nothing: bool,
        done: PutDone,
        require_replicas: bool = False,
    ) -> Iterator[None]:
        """Messages given as fields, `STEP_MESSAGES` of them at a step."""
        now = self._clock.wall_ms()

        def prepare(message: PutMessage) -> Prepared:
            return self._preparer.message(message, now, in_batch=all_or_nothing)

        return self._in_steps(messages, prepare, all_or_nothing, done, require_replicas)

    def raw(self, frames: Iterable[bytes], done: PutDone) -> Iterator[None]:
        """Complete frames, `STEP_MESSAGES` of them at a step."""
        return self._in_steps(frames, lambda frame: self._preparer.raw(frame), False, done)

    def batch(
        self,
        batch: FrameBatch,
        done: BatchDone,
        require_replicas: bool = False,
        permit: Callable[[str], None] = lambda topic: None,
    ) -> None:
        """Ready frames, as columns: all or none of them, or all that the log takes of a partial
        batch. `permit` raises NotPermittedError for a topic."""
        obstacle = self._obstacle(require_replicas)
        if obstacle is not None:
            done(BatchResult(self._gate.refuse(obstacle), error=obstacle))
            return
        try:
            check_shape(batch, self.max_batch_bytes, self._config.max_batch_messages)
            taken, refusals = check_topics(batch, self._topics, permit)
        except StrataError as error:
            done(BatchResult(refused_status(error), error=error))
            return
        if refusals and not batch.partial:
            done(BatchResult(refusals[0].status, error=refusals[0].error))
            return
        for config in taken:
            self._topics.keep(config)
        if not refusals:
            self._enqueue(BatchItem(batch, done, len(batch.frames)))
            return
        for piece in pieces_between(batch, refusals, done):
            self._enqueue(piece)

    def _obstacle(self, require_replicas: bool) -> StrataError | None:
        obstacle = self._gate.obstacle()
        if obstacle is None and require_replicas:
            return self._replica_obstacle()
        return obstacle

    def _in_steps(
        self,
        asked: Iterable[Any],
        prepare: Callable[[Any], Prepared],
        atomic: bool,
        done: PutDone,
        require_replicas: bool = False,
    ) -> Iterator[None]:
        outcomes: Outcomes = []
        error = self._obstacle(require_replicas)
        status = self._gate.refuse(error) if error is not None else None
        for number, one in enumerate(asked, 1):
            if status is None:
                outcomes.append(_outcome(one, prepare))
            else:
                outcomes.append(PutResult(status, getattr(one, "topic", ""), error=error))
            if number % STEP_MESSAGES == 0:
                yield
        if status is None and (error := self._obstacle(require_replicas)) is not None:
            status = self._gate.refuse(error)
            outcomes = [PutResult(status, one.topic, error=error) for one in outcomes]
        refused = None
        if atomic and status is None:
            refused = batch_refusal(outcomes, self.max_batch_bytes)
        if refused is not None:
            outcomes = [refused] * len(outcomes)
        if status is None and refused is None and outcomes:
            size = sum(len(one.frame) for one in outcomes if isinstance(one, Prepared))
            self._enqueue(PutItem(outcomes, atomic, done, size))
        else:
            done([one for one in outcomes if isinstance(one, PutResult)])


def _outcome(one: Any, prepare: Callable[[Any], Prepared]) -> Prepared | PutResult:
    try:
        return prepare(one)
    except Refused as refused:
        return PutResult(refused.status, getattr(one, "topic", ""), error=refused.error)
