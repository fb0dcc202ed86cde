# Generated from _async/consumer.py by scripts/gen_sync_client.py (`make client`).
"""The reader of topics: an iterator of messages."""

import logging
import weakref
from collections.abc import Callable, Collection, Iterator

import grpc

from stratamq.client._sync.calls import run_plan
from stratamq.client.connections import Connections, Stream
from stratamq.client.consuming import (
    LONGEST_LOOK_S,
    LOOK_FOR_ENDS_S,
    Plan,
    Reading,
    Start,
    plan_ends,
    plan_seek,
)
from stratamq.client.group_operations import commit_offsets
from stratamq.client.hooks import Hooks
from stratamq.client.operations import RunOperation
from stratamq.client.primitives import (
    Event,
    Lock,
    Once,
    Ongoing,
    Worker,
)
from stratamq.client.received import ReceivedMessage
from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.files.port import Clock
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.methods import DISPATCHER, METHODS

log = logging.getLogger(__name__)

SHORTEST_COMMIT_INTERVAL_S = 0.01
PAUSED_LOOK_S = 0.1
LONGEST_WAIT_S = 365 * 86_400.0
"""What counts as for ever."""


class Consumer:
    """Made by `Client.consume`: iterate, then close, best by `with`. One thread at a time.

    A lost connection is made again from where the reader is. With a group, what was taken is
    committed every `commit_interval_s`, whether messages come or not, and by `close`; a message
    counts as taken when the next one is asked for, so that a crash in between gives it again.
    Leaving `with` in order commits everything given.
    """

    def __init__(
        self,
        connections: Connections,
        run: RunOperation,
        make_plan: Callable[[], Plan],
        reading: Reading,
        *,
        backoff: Backoff,
        clock: Clock,
        hooks: Hooks,
        group: str | None = None,
        client_id: str = "",
        follow: bool = False,
        refresh_s: float = 30.0,
        commit_interval_s: float = 5.0,
        on_interruption: Callable[[StrataError | None], None] | None = None,
    ) -> None:
        self._connections = connections
        self._run = run
        self._make_plan = make_plan
        self._reading = reading
        self._backoff = backoff
        self._clock = clock
        self._hooks = hooks
        self._sees_received = hooks.see_received
        self._group = group
        self._client_id = client_id
        self._follow = follow
        self._refresh_s = refresh_s
        self._look_s = min(refresh_s, LOOK_FOR_ENDS_S)
        """How long a stream of a reader that does not follow lasts."""
        self._commit_interval_s = max(commit_interval_s, SHORTEST_COMMIT_INTERVAL_S)
        self._stream: Stream | None = None
        self._answered = False
        """By the stream."""
        self._closed = Event()
        self._moving = False
        """The stream ends because what is to be read changes. After a cancellation too: the next
        caller waits for its end."""
        self._given: Iterator[ReceivedMessage] = iter(())
        self._asking = False
        self._answers = Ongoing()
        self._committing = Lock()
        self._refusal: StrataError | None = None
        """Why the regular commit failed for good."""
        self._on_interruption = on_interruption
        self._interrupted = False
        self._begun = Once(self._begin)

    def _begin(self) -> None:
        """Learn which queues there are and where to begin."""
        self._reading.extend(run_plan(self._run, self._make_plan()))
        if self._group is not None:
            Worker(
                "stratamq-commit",
                _commit_regularly,
                weakref.ref(self),
                self._closed,
                self._commit_interval_s,
            ).start()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        self._enter()
        try:
            message = self._next(None)
        finally:
            self._asking = False
        if message is None:
            raise StopIteration
        return message

    def poll(self, timeout_s: float = 0.0) -> ReceivedMessage | None:
        """The next message; None when none comes within `timeout_s`, or none is left.

        The first call looks for the queues beforehand, however long that takes."""
        self._enter()
        try:
            return self._next(timeout_s)
        except TimeoutError:
            return None
        finally:
            self._asking = False

    def getmany(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[ReceivedMessage]:
        """What has come, of one queue, at most so many; waits `timeout_s` for the first. They
        count as taken when this reader is asked again. Empty when none came, or none is left."""
        if max_messages < 1:
            raise InvalidRequestError(f"max_messages is {max_messages}: ask for at least one")
        self._enter()
        try:
            message = self._next(timeout_s)
            messages = []
            self._reading.hold()
            while message is not None:
                messages.append(message)
                more = len(messages) < max_messages
                message = next(self._given, None) if more else None
                if message is not None and self._sees_received:
                    try:
                        self._hooks.received(message)
                    except Exception:  # noqa: BLE001 - the next caller gets it
                        self._give_back(message)
                        break
            return messages
        except TimeoutError:
            return []
        finally:
            self._asking = False

    def _give_back(self, message: ReceivedMessage) -> None:
        """It comes again, and what an interceptor raised for it: first the caller gets those before
        it."""
        self._reading.give_back(message)
        self._moving = True
        self._end_stream()

    def _enter(self) -> None:
        if self._asking:
            raise RuntimeError("another thread waits for this reader's next message")
        self._asking = True

    def _next(self, timeout_s: float | None) -> ReceivedMessage | None:
        """The next message; None behind the last. TimeoutError."""
        if self._moving:
            self._interrupt()
        if timeout_s is not None and not timeout_s < LONGEST_WAIT_S:
            if timeout_s != timeout_s:
                raise InvalidRequestError("timeout_s is no number")
            timeout_s = LONGEST_WAIT_S
        self._reading.release()
        end_ns = None
        while not self._closed.is_set():
            # From here to the return nothing waits: no cancellation comes in between.
            message = next(self._given, None)
            if message is not None:
                if self._sees_received:
                    self._hooks.received(message)
                return message
            self._begun.done()
            if timeout_s is None and self._reading.paused:
                raise InvalidRequestError("all that is left to read is paused: resume it, or poll")
            if timeout_s is not None:
                now_ns = self._clock.monotonic_ns()
                end_ns = now_ns + int(timeout_s * 1e9) if end_ns is None else end_ns
                timeout_s = max(0.0, (end_ns - now_ns) / 1e9)
            response = self._answers.result(self._next_response, timeout_s)
            if response is None:
                break
            self._given = self._reading.receive(response)
        self._commit(given=False)
        return None

    # --- where it reads ---

    @property
    def positions(self) -> dict[tuple[str, int], int]:
        """Behind the message that was given last, by (topic, queue id)."""
        return self._reading.positions

    def seek(
        self, to: Start, *, queues: Collection[int] | None = None, topic: str | None = None
    ) -> None:
        """Continue at `to`, in all queues or in these: EARLIEST, LATEST, an offset, a moment.

        For the group that is where it continues, from the next commit on. What a queue does not
        hold becomes the nearest offset that it does. InvalidRequestError for a queue that is not
        read here."""
        self._enter()
        try:
            self._begun.done()
            ranges = self._reading.chosen(queues, topic)
            offsets = run_plan(self._run, plan_seek(ranges, to))
            self._interrupt()
            self._reading.seek(ranges, offsets)
        finally:
            self._asking = False

    def pause(self, queues: Collection[int] | None = None, *, topic: str | None = None) -> None:
        """Read nothing of these queues, or of all, until `resume`. Their place is kept.
        InvalidRequestError for a queue that is not read here."""
        self._set_paused(queues, topic, True)

    def resume(self, queues: Collection[int] | None = None, *, topic: str | None = None) -> None:
        """Read these queues again, or all."""
        self._set_paused(queues, topic, False)

    def _set_paused(self, queues: Collection[int] | None, topic: str | None, paused: bool) -> None:
        self._enter()
        try:
            self._begun.done()
            ranges = self._reading.chosen(queues, topic)
            self._interrupt()
            for one in ranges:
                one.paused = paused
        finally:
            self._asking = False

    def _interrupt(self) -> None:
        """End the stream, and forget what came and was not given: it is asked for again."""
        self._moving = True
        self._end_stream()
        self._answers.ended()
        self._given = iter(())
        self._reading.drop_given()
        self._moving = False

    # --- what was taken, and the end ---

    def commit(self) -> None:
        """Store for the group what was given so far, the last message included."""
        self._commit(given=True)

    def close(self) -> None:
        """Stop reading, from any thread, and commit what was taken. A thread that waits for a
        message gets StopIteration."""
        self._stop()
        self._commit(given=False)

    def __enter__(self) -> "Consumer":
        self._begun.done()
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        self._stop()
        try:
            self._commit(given=error_type is None)
        except StrataError as error:
            if error_type is None:
                raise
            # The caller gets the first error; the messages come again.
            log.warning("offsets not committed", extra={"error": str(error)})

    def _stop(self) -> None:
        self._closed.set()
        self._end_stream()
        self._answers.ended()

    def _end_stream(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.end()

    def _commit(self, *, given: bool) -> None:
        if self._group is None:
            return
        with self._committing:  # or an older commit could overtake a newer one
            offsets = self._reading.uncommitted(given=given)
            if offsets:
                self._run(commit_offsets(self._group, offsets, self._client_id))
                self._reading.committed(offsets)

    def _commit_in_time(self) -> None:
        """What is refused ends the reading with that error."""
        try:
            self._commit(given=False)
        except UnavailableError:
            return  # the reading fails too if it lasts; the next commit takes it all
        except StrataError as error:
            if self._connections.leads(error):
                return  # until the cluster has a master
            self._refusal = error
            self._end_stream()

    # --- reading ---

    def _next_response(self) -> bytes | None:
        """The next answer; None when everything was read, or the reader was closed."""
        reading = self._reading
        while not self._closed.is_set():
            if self._refusal is not None:
                raise self._refusal
            if self._moving or (reading.ended and not self._follow):
                break
            try:
                if reading.paused:
                    self._closed.wait(PAUSED_LOOK_S)
                    continue
                if not reading.ranges:  # it follows a topic that is not there yet
                    if not self._closed.wait(min(1.0, self._refresh_s)):
                        reading.extend(run_plan(self._run, self._make_plan()))
                    continue
                response = self._read()
            except StrataError as error:
                self._lost(error)
                continue
            if response is not None:
                self._backoff.reset()
                self._set_interrupted(None)
                return response
            if self._moving:
                break
            if not reading.ended and self._refusal is None:
                self._lost(UnavailableError("the dispatcher ended the stream"))
        return None

    def _read(self) -> bytes | None:
        """The next answer of a stream that ends when it is time to look again."""
        stream = self._stream
        if stream is None:
            timeout_s = self._refresh_s if self._follow else self._look_s
            self._stream = stream = self._connections.open(
                METHODS["PullStream"], self._reading.request(), timeout_s
            )
            self._answered = False
            if self._closed.is_set() or self._moving or self._refusal is not None:
                stream.end()
        response: bytes | None = None
        try:
            response = stream.read()
        finally:
            if response is None:
                stream.end()
                self._stream = None
        self._answered |= response is not None
        return response

    def _lost(self, error: StrataError) -> None:
        if self._closed.is_set() or self._moving:
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
        reading = self._reading
        self._connections.refresh()
        try:
            if self._follow:
                reading.extend(run_plan(self._run, self._make_plan()))
            else:
                reading.shorten(run_plan(self._run, plan_ends(reading.unfinished)))
        except UnavailableError:
            return  # the next stream fails too if it lasts, and waits


def _commit_regularly(consumer: "weakref.ref[Consumer]", closed: Event, interval_s: float) -> None:
    """Until the reader is closed, or nothing else holds it."""
    while not closed.wait(interval_s):
        reader = consumer()
        if reader is None:
            return
        reader._commit_in_time()
        del reader
