"""Hypothesis drives log, dispatcher, disk and power against the simplest model: lists."""

import errno
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from stratamq_dispatcher.time_search import Boundary, offset_at

from stratamq.errors import StrataError
from stratamq.files.simulated import SimulatedDisk, random_choice
from stratamq.formats.message_status import PullStatus
from tests.dispatcher.fixture_store import linear_offset_at
from tests.dispatcher.followed_log import Broker, WrittenLog, start
from tests.dispatcher.queue_checks import check_files, check_queues, frames_of, pull

TOPICS = ("a", "b")
SEEDS = st.integers(0, 2**16)


class DispatcherModel(RuleBasedStateMachine):
    """`log.messages` is the model: what a queue holds is what the log holds of it."""

    @initialize(seed=SEEDS, upf=st.sampled_from([1, 3, 8]))
    def begin(self, seed: int, upf: int) -> None:
        self.seed = seed
        self.queue_file_bytes = upf * 20
        self.disk = SimulatedDisk(seed=seed)
        self.log = WrittenLog(self.disk.files(name="log"), segment_bytes=1024)
        self.flushed = 0
        """What a power loss leaves of the log."""
        self.broker: Broker | None = None

    # --- the log ---

    @rule(topic=st.sampled_from(TOPICS), queue=st.integers(0, 1), count=st.integers(1, 12))
    def put(self, topic: str, queue: int, count: int) -> None:
        for _ in range(count):
            self.log.put(topic, queue, tags="xyz"[count % 3], after_ms=count % 2)

    @rule(part=st.floats(0, 1))
    def log_flushes(self, part: float) -> None:
        ends = [m.end for m in self.log.messages if m.end > self.flushed]
        if ends:
            self.flushed = ends[int(part * (len(ends) - 1))]

    @rule(segments=st.integers(1, 3))
    def log_deletes(self, segments: int) -> None:
        """What no follower needs any more, or anything while the follower is disconnected."""
        below = self.log.minimum + segments * self.log.segment_bytes
        needed = self.flushed if self.broker is None else self.broker.engine.followed.durable
        if below <= needed and below < self.log.end - self.log.segment_bytes:
            self.log.delete_below(below)

    # --- the dispatcher ---

    def start(self) -> None:
        broker = start(
            self.disk.files(name="dispatcher"),
            self.log,
            seed=self.seed,
            connect=False,
            queue_file_bytes=self.queue_file_bytes,
        )
        broker.event_members = 7
        broker.flushed = self.flushed
        broker.connect()
        self.broker = broker

    def stop_following(self, error: Exception) -> None:
        assert self.broker is not None
        self.broker.engine.fold.stopped(error)
        self.broker.engine_files.kill()  # type: ignore[attr-defined]
        self.broker = None

    @rule()
    def follow(self) -> None:
        """Start if need be; everything that is confirmed is applied."""
        try:
            if self.broker is None:
                self.start()
            assert self.broker is not None
            self.broker.flushed = self.flushed
            self.broker.send()
        except (OSError, StrataError) as error:
            if not self.disk.faults:
                raise
            if self.broker is not None:
                self.stop_following(error)

    @precondition(lambda self: self.broker is not None)
    @rule(steps=st.integers(1, 6))
    def worker_runs(self, steps: int) -> None:
        assert self.broker is not None
        self.broker.clock.advance_ms(400)
        self.broker.engine.tick()
        for _ in range(steps):
            self.broker.worker.run_one()

    @precondition(lambda self: self.broker is not None)
    @rule()
    def reconnect(self) -> None:
        assert self.broker is not None
        try:
            self.broker.connect()
        except (OSError, StrataError) as error:
            if not self.disk.faults:
                raise
            self.stop_following(error)

    @precondition(lambda self: self.broker is not None)
    @rule()
    def stop(self) -> None:
        assert self.broker is not None
        self.broker.stop()
        self.broker.engine_files.kill()  # type: ignore[attr-defined]
        self.broker = None

    # --- misfortune ---

    @rule()
    def kill(self) -> None:
        if self.broker is not None:
            self.broker.engine_files.kill()  # type: ignore[attr-defined]
            self.broker = None

    @rule(seed=SEEDS)
    def lose_power(self, seed: int) -> None:
        """The log loses what it had not flushed, and continues with other messages."""
        self.disk.clear_faults()
        self.disk.crash(random_choice(random.Random(seed)))
        self.broker = None
        self.log.files = self.disk.files(name="log")
        self.log.cut(max(self.flushed, self.log.minimum))
        self.log.restart()

    @rule(part=st.floats(0, 1))
    def history_is_rewritten(self, part: float) -> None:
        """A slave is cut to its master's history, below what was flushed."""
        if self.log.messages:
            at = self.log.messages[int(part * (len(self.log.messages) - 1))].offset
            self.log.cut(at)
            self.log.restart()
            self.flushed = min(self.flushed, at)
            if self.broker is not None:
                self.broker.flushed = self.flushed
                self.reconnect()

    @rule()
    def generations_are_forgotten(self) -> None:
        self.kill()
        self.log.forget_generations()

    @rule(error=st.sampled_from([errno.EIO, errno.ENOSPC]), nth=st.integers(1, 25))
    def a_call_will_fail(self, error: int, nth: int) -> None:
        path = "consumequeue*" if nth % 2 else "stratamq/dispatcher*"
        self.disk.fail(path=path, nth=nth, error=error)

    # --- what must hold ---

    @rule()
    def everything_settles(self) -> None:
        """Without faults, following makes queues and files equal to what follows from the log."""
        self.disk.clear_faults()
        self.flushed = self.log.end
        if self.broker is not None and self.broker.engine.followed.stopped_reason:
            self.kill()
        self.follow()
        assert self.broker is not None
        self.broker.flush()
        if self.broker.engine.followed.stopped_reason:  # a sync had failed before
            self.kill()
            self.follow()
            self.broker.flush()
        assert self.broker.engine.followed.durable == self.log.end
        check_queues(self.broker)
        if self.log.minimum == 0:
            check_files(self.broker)

    @invariant()
    def nothing_durable_is_above_flushed(self) -> None:
        if getattr(self, "broker", None) is not None:
            assert self.broker is not None
            assert self.broker.engine.followed.durable <= max(self.flushed, self.log.minimum)

    def is_up_to_date(self) -> bool:
        assert self.broker is not None
        engine = self.broker.engine
        known = (engine.followed.applied, engine.followed.minimum) == (
            self.log.end,
            self.log.minimum,
        )
        return known and not self.disk.faults

    @precondition(lambda self: self.broker is not None and self.broker.engine.followed.serving)
    @rule(
        topic=st.sampled_from(TOPICS),
        queue=st.integers(0, 1),
        back=st.integers(-2, 40),
        most=st.integers(1, 40),
    )
    def a_consumer_gets_what_the_log_holds(
        self, topic: str, queue: int, back: int, most: int
    ) -> None:
        broker = self.broker
        assert broker is not None
        there = [
            m for m in self.log.of_queue(topic, queue) if m.end <= broker.engine.followed.applied
        ]
        if not there or not self.is_up_to_date():
            return
        offset = there[-1].queue_offset + 1 - back
        answer = pull(broker, topic, queue, offset, most)
        first, end = there[0].queue_offset, there[-1].queue_offset + 1
        assert (answer.minimum, answer.maximum) == (first, end)
        if offset < first:
            assert (answer.status, answer.next_offset) == (PullStatus.OFFSET_TOO_SMALL, first)
        elif offset == end:
            assert (answer.status, answer.next_offset) == (PullStatus.OFFSET_OVERFLOW_ONE, end)
        elif offset > end:
            assert (answer.status, answer.next_offset) == (PullStatus.OFFSET_OVERFLOW_BADLY, end)
        else:
            frames = frames_of(answer)
            assert answer.status is PullStatus.FOUND
            assert frames == [m.frame for m in there[offset - first : offset - first + len(frames)]]
            assert 1 <= len(frames) <= min(most, 32)
            assert answer.next_offset == offset + len(frames)

    @precondition(lambda self: self.broker is not None and self.broker.engine.followed.serving)
    @rule(
        topic=st.sampled_from(TOPICS),
        queue=st.integers(0, 1),
        shift=st.integers(-3, 60),
        boundary=st.sampled_from(list(Boundary)),
    )
    def a_time_is_found_as_by_looking_at_every_message(
        self, topic: str, queue: int, shift: int, boundary: Boundary
    ) -> None:
        broker = self.broker
        assert broker is not None
        there = self.log.of_queue(topic, queue)
        if not there or not self.is_up_to_date():
            return
        found = broker.engine.queues.get(topic, queue)
        first = there[0].queue_offset
        asked = there[0].store_ms + shift
        expected = first + linear_offset_at([m.store_ms for m in there], asked, boundary)
        open_files = broker.engine.queues.open_files
        assert broker.engine.followed.segments is not None
        log = broker.engine.hot_log()
        assert offset_at(found, first, open_files, log, asked, boundary) == expected


@pytest.mark.parametrize("examples", [120])
def test_queues_agree_with_the_log_whatever_happens(examples):
    run_state_machine_as_test(
        DispatcherModel,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
