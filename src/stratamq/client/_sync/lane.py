# Generated from _async/lane.py by scripts/gen_sync_client.py (`make client`).
"""One broker's part of a reader: the stream of its queues, made again where it breaks, and what a
group has taken of them."""

import weakref
from collections.abc import Callable

import grpc

from stratamq.client._sync.brokers import Broker
from stratamq.client._sync.calls import run_plan
from stratamq.client.client_settings import ClientSettings
from stratamq.client.connections import Stream
from stratamq.client.consuming import (
    LONGEST_LOOK_S,
    LOOK_FOR_ENDS_S,
    Plan,
    ReadQueues,
    plan_ends,
)
from stratamq.client.group_operations import commit_offsets
from stratamq.client.primitives import Event, Lock, Ongoing, Worker
from stratamq.client.reading import Reading
from stratamq.client.spans import CallSpan, receiving
from stratamq.errors import StrataError, UnavailableError
from stratamq.rpc.methods import METHODS
from stratamq.rpc.request_ids import within
from stratamq.rpc.rooms import DISPATCHER

PAUSED_LOOK_S = 0.1


class Lane:
    """One reader has it. `answers` runs `next_response`; the reader's one caller calls everything
    else, and other threads may call `end_stream` and `commit`."""

    def __init__(
        self,
        broker: Broker,
        make_plan: Callable[[], Plan],
        reading: Reading,
        settings: ClientSettings,
        closed: Event,
        on_interruption: Callable[[StrataError | None], None] | None,
    ) -> None:
        """`closed`: the reader's."""
        self.broker = broker.name
        self.queues = ReadQueues((), reading)
        self.answers = Ongoing()
        self.moving = False
        """The stream ends because what is to be read changes. After a cancellation too: the next
        caller waits for its end."""
        self._connections = broker.connections
        self.run = broker.run
        self._make_plan = make_plan
        self._reading = reading
        self._backoff = settings.backoff(None if reading.follow else reading.retry_timeout_s)
        self._look_s = min(reading.refresh_s, LOOK_FOR_ENDS_S)
        """How long a stream of a reader that does not follow lasts."""
        self._stream: Stream | None = None
        self._spans = settings.hooks.spans
        self._span: CallSpan | None = None
        """Of the stream."""
        self._answered = False
        """By the stream."""
        self._closed = closed
        self._committing = Lock()
        self._refusal: StrataError | None = None
        """Why the regular commit failed for good."""
        self._on_interruption = on_interruption
        self._interrupted = False

    def begin(self) -> None:
        """Learn which queues there are and where to begin."""
        self.queues.extend(run_plan(self.run, self._make_plan()))
        self.commit_regularly()

    def commit_regularly(self) -> None:
        """With a group, from now on."""
        if self._reading.group is not None:
            Worker(
                "stratamq-commit",
                _commit_regularly,
                weakref.ref(self),
                self._closed,
                self._reading.commit_interval_s,
            ).start()

    def end_stream(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.end()
        self._end_span()

    def _end_span(self) -> None:
        span, self._span = self._span, None
        if span is not None:
            span.end()

    # --- what was taken ---

    def commit(self, *, given: bool) -> None:
        """Store for the group what was taken, with `given` also what was given last."""
        group = self._reading.group
        if group is None:
            return
        with self._committing:  # or an older commit could overtake a newer one
            offsets = self.queues.uncommitted(given=given)
            if offsets:
                client_id, known = self._reading.client_id or "", self.queues.generations
                self.run(commit_offsets(group, offsets, client_id, known))
                self.queues.committed(offsets)

    def _commit_in_time(self) -> None:
        """What is refused ends the reading with that error."""
        try:
            self.commit(given=False)
        except UnavailableError:
            return  # the reading fails too if it lasts; the next commit takes it all
        except StrataError as error:
            if self._connections.leads(error):
                return  # until the cluster has a master
            self._refusal = error
            self.end_stream()

    # --- reading ---

    def next_response(self) -> bytes | None:
        """The next answer; None when everything was read, or the reader was closed."""
        queues, follow = self.queues, self._reading.follow
        while not self._closed.is_set():
            if self._refusal is not None:
                raise self._refusal
            if self.moving or (not follow and queues.ended):
                break
            try:
                if queues.paused:
                    self._closed.wait(PAUSED_LOOK_S)
                    continue
                if not queues.ranges:  # it follows a topic that is not there yet
                    if not self._closed.wait(min(1.0, self._reading.refresh_s)):
                        queues.extend(run_plan(self.run, self._make_plan()))
                    continue
                response = self._read()
            except StrataError as error:
                self._lost(error)
                continue
            if response is not None:
                self._backoff.reset()
                self._set_interrupted(None)
                return response
            if self.moving:
                break
            if not queues.ended and self._refusal is None:
                self._lost(UnavailableError("the dispatcher ended the stream"))
        self._end_span()
        return None

    def _read(self) -> bytes | None:
        """The next answer of a stream that ends when it is time to look again."""
        stream = self._stream
        if stream is None:
            timeout_s = self._reading.refresh_s if self._reading.follow else self._look_s
            self._stream = stream = self._opened(timeout_s)
            self._answered = False
            if self._closed.is_set() or self.moving or self._refusal is not None:
                stream.end()
        response: bytes | None = None
        try:
            response = stream.read()
        finally:
            if response is None:
                stream.end()
                self._stream = None
                self._end_span()
        self._answered |= response is not None
        return response

    def _opened(self, timeout_s: float) -> Stream:
        method, request = METHODS["PullStream"], self.queues.request()
        if self._spans is None:
            return self._connections.open(method, request, timeout_s)
        topics = {one.topic for one in self.queues.unfinished}
        span = self._spans.begin(receiving(topics, self._reading.group or ""))
        try:
            with within(span.request):
                stream = self._connections.open(method, request, timeout_s)
        except BaseException as error:
            span.end(error)
            raise
        self._span = span
        return stream

    def _lost(self, error: StrataError) -> None:
        if self._closed.is_set() or self.moving:
            return
        if error.fields.get("status") == grpc.StatusCode.DEADLINE_EXCEEDED.name:
            if not self._answered:  # what comes slowly must come within some stream
                self._look_s = min(2 * self._look_s, LONGEST_LOOK_S)
            self._look_again()
            return
        if not isinstance(error, UnavailableError):
            raise error
        delay_s = self._backoff.next_delay_s()
        if delay_s is None:
            raise error
        self._set_interrupted(error)
        self._connections.renew(DISPATCHER)
        self._closed.wait(delay_s)

    def _set_interrupted(self, error: StrataError | None) -> None:
        if self._interrupted != (error is not None):
            self._interrupted = error is not None
            if self._on_interruption is not None:
                self._on_interruption(error)

    def _look_again(self) -> None:
        """For queues that are new, or that end earlier than they did."""
        queues = self.queues
        self._connections.refresh()
        try:
            if self._reading.follow:
                queues.extend(run_plan(self.run, self._make_plan()))
            else:
                queues.shorten(run_plan(self.run, plan_ends(queues.unfinished)))
        except UnavailableError:
            return  # the next stream fails too if it lasts, and waits


def _commit_regularly(lane: "weakref.ref[Lane]", closed: Event, interval_s: float) -> None:
    """Until the reader is closed, or nothing else holds it."""
    while not closed.wait(interval_s):
        reader = lane()
        if reader is None:
            return
        reader._commit_in_time()
        del reader
