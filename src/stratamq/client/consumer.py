"""The synchronous reader of topics: an iterator of messages."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from stratamq.client.consuming import Plan, Range, Reading
from stratamq.client.endpoints import Channels
from stratamq.client.lost import stream_error
from stratamq.client.operations import Operation, commit_offsets
from stratamq.client.received import ReceivedMessage
from stratamq.client.waiting import Patience
from stratamq.client.wire import DISPATCHER, METHODS
from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock


class Consumer:
    """Made by `Client.consume`: iterate, then close, best by `with`. One thread at a time.

    A lost connection is made again from where the reader is. With a group, what was taken is
    committed every few seconds; a message counts as taken when the next one is asked for, so that
    a crash in between gives it again. Leaving `with` in order commits everything given.
    """

    def __init__(
        self,
        channels: Channels,
        run: Callable[[Operation[Any]], Any],
        make_plan: Callable[[], Plan],
        reading: Reading,
        *,
        group: str | None,
        follow: bool,
        patience: Patience,
        refresh_s: float,
        commit_interval_s: float,
        clock: Clock,
    ) -> None:
        self._channels = channels
        self._run = run
        self._make_plan = make_plan
        self._reading = reading
        self._group = group
        self._follow = follow
        self._patience = patience
        self._refresh_s = refresh_s
        self._commit_interval_ns = int(commit_interval_s * 1e9)
        self._clock = clock
        self._next_commit_ns = clock.monotonic_ns() + self._commit_interval_ns
        self._call: Any = None
        self._closed = threading.Event()
        self._messages = self._read()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self._messages

    def __next__(self) -> ReceivedMessage:
        return next(self._messages)

    def commit(self) -> None:
        """Store for the group what was given so far, the last message included."""
        self._commit(given=True)

    def _commit(self, *, given: bool) -> None:
        if self._group is None:
            return
        offsets = self._reading.uncommitted(given=given)
        if offsets:
            self._run(commit_offsets(self._group, offsets))
            self._reading.committed(offsets)
        self._next_commit_ns = self._clock.monotonic_ns() + self._commit_interval_ns

    def close(self) -> None:
        """Stop reading, from whatever thread."""
        self._closed.set()
        call = self._call
        if call is not None:
            call.cancel()

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self.close()
        if error_type is None:
            self.commit()

    def _read(self) -> Iterator[ReceivedMessage]:
        while not self._closed.is_set():
            if self._reading.ended and not self._follow:
                break
            try:
                if not self._reading.ranges:  # it follows a topic that is not there yet
                    if self._closed.wait(min(1.0, self._refresh_s)):
                        break
                    self._reading.extend(plan_run(self._run, self._make_plan()))
                    continue
                yield from self._stream()
            except grpc.RpcError as failure:
                self._lost(stream_error(failure))
            except UnavailableError as error:
                self._lost(error)
        self._commit(given=False)

    def _stream(self) -> Iterator[ReceivedMessage]:
        """One stream, until it ends or it is time to look for new queues."""
        reading, grouped = self._reading, self._group is not None
        pull = self._channels.callable(METHODS["PullStream"])
        call = pull(reading.request(), timeout=self._refresh_s if self._follow else None)
        self._call = call
        if self._closed.is_set():
            return
        try:
            for response in call:
                self._patience.reset()
                for message in reading.receive(response):
                    if grouped and self._clock.monotonic_ns() >= self._next_commit_ns:
                        self._commit(given=False)
                    yield message
                    if self._closed.is_set():
                        return
        finally:
            call.cancel()
        if not reading.ended:
            raise UnavailableError("the dispatcher ended the stream")

    def _lost(self, error: StrataError) -> None:
        if self._closed.is_set():
            return
        if error.fields.get("status") == grpc.StatusCode.DEADLINE_EXCEEDED.name and self._follow:
            self._look_for_new_queues()
            return
        if not isinstance(error, UnavailableError):
            raise error
        delay_s = self._patience.next_delay_s()
        if delay_s is None:
            raise error
        self._channels.renew(DISPATCHER)
        self._closed.wait(delay_s)

    def _look_for_new_queues(self) -> None:
        try:
            self._reading.extend(plan_run(self._run, self._make_plan()))
        except UnavailableError:
            return  # the next stream will tell, and wait


def plan_run(run: Callable[[Operation[Any]], Any], plan: Plan) -> list[Range]:
    """Run a plan's operations one after the other."""
    try:
        operation = next(plan)
        while True:
            try:
                result = run(operation)
            except StrataError as error:
                operation = plan.throw(error)
            else:
                operation = plan.send(result)
    except StopIteration as end:
        return end.value
