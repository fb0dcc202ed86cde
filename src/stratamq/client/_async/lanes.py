"""The lanes of a reader, one for each broker: the stream of its queues, made again where it breaks,
and what a group has taken of them. They are read side by side."""

import logging
import weakref
from collections.abc import Callable, Mapping
from functools import partial

import grpc

from stratamq.client._async.brokers import AsyncBroker, AsyncBrokers
from stratamq.client._async.calls import run_plan
from stratamq.client.checking import Callback, Interruption
from stratamq.client.client_settings import ClientSettings
from stratamq.client.connections import AsyncStream
from stratamq.client.consuming import (
    LONGEST_LOOK_S,
    LOOK_FOR_ENDS_S,
    Plan,
    ReadQueues,
    plan_ends,
    refuse_paused,
)
from stratamq.client.group_operations import commit_offsets
from stratamq.client.primitives import AsyncBackground, AsyncEvent, AsyncLock, AsyncOngoing
from stratamq.client.reading import Reading
from stratamq.client.shard_routes import of_broker
from stratamq.client.spans import CallSpan, receiving
from stratamq.errors import NotFoundError, StrataError, UnavailableError
from stratamq.rpc.methods import METHODS
from stratamq.rpc.request_ids import within
from stratamq.rpc.rooms import DISPATCHER

log = logging.getLogger(__name__)

_PAUSED_LOOK_S = 0.1


class AsyncLane:
    """One reader has it. `answers` runs `next_response`; the reader's one caller calls everything
    else, and other tasks may call `end_stream` and `commit`."""

    def __init__(
        self,
        broker: AsyncBroker,
        make_plan: Callable[[], Plan],
        reading: Reading,
        settings: ClientSettings,
        closed: AsyncEvent,
        on_interruption: Callable[[StrataError | None], None] | None,
    ) -> None:
        """`closed`: the reader's."""
        self.broker = broker.name
        self.queues = ReadQueues((), reading)
        self.answers = AsyncOngoing()
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
        self._stream: AsyncStream | None = None
        self._spans = settings.hooks.spans
        self._span: CallSpan | None = None
        """The stream's span."""
        self._answered = False
        """By the stream."""
        self._closed = closed
        self._committing = AsyncLock()
        self._refusal: StrataError | None = None
        """Why the regular commit failed for good."""
        self._set_interrupted = Interruption(on_interruption)

    async def begin(self) -> None:
        """Learn which queues there are and where to begin."""
        self.queues.extend(await run_plan(self.run, self._make_plan()))
        self.commit_regularly()

    def commit_regularly(self) -> None:
        """With a group, from now on."""
        if self._reading.group is not None:
            AsyncBackground(
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

    async def commit(self, *, given: bool) -> None:
        """Store for the group what was taken, with `given` also what was given last."""
        group = self._reading.group
        if group is None:
            return
        async with self._committing:  # or an older commit could overtake a newer one
            offsets = self.queues.uncommitted(given=given)
            if offsets:
                client_id, known = self._reading.client_id or "", self.queues.generations
                await self.run(commit_offsets(group, offsets, client_id, known))
                self.queues.committed(offsets)

    async def _commit_in_time(self) -> None:
        """What is refused ends the reading with that error."""
        try:
            await self.commit(given=False)
        except UnavailableError:
            return  # the reading fails too if it lasts; the next commit takes it all
        except StrataError as error:
            if self._connections.leads(error):
                return  # until the cluster has a master
            self._refusal = error
            self.end_stream()

    # --- reading ---

    async def next_response(self) -> bytes | None:
        """The next answer; None when everything was read, or the reader was closed."""
        queues, follow = self.queues, self._reading.follow
        while not self._closed.is_set():
            if self._refusal is not None:
                raise self._refusal
            if self.moving or (not follow and queues.ended):
                break
            try:
                if queues.paused:
                    await self._closed.wait(_PAUSED_LOOK_S)
                    continue
                if not queues.ranges:  # it follows a topic that is not there yet
                    if not await self._closed.wait(min(1.0, self._reading.refresh_s)):
                        queues.extend(await run_plan(self.run, self._make_plan()))
                    continue
                response = await self._read()
            except StrataError as error:
                await self._lost(error)
                continue
            if response is not None:
                self._backoff.reset()
                self._set_interrupted(None)
                return response
            if self.moving:
                break
            if not queues.ended and self._refusal is None:
                await self._lost(UnavailableError("the dispatcher ended the stream"))
        self._end_span()
        return None

    async def _read(self) -> bytes | None:
        """The next answer of a stream that ends when it is time to look again."""
        stream = self._stream
        if stream is None:
            timeout_s = self._reading.refresh_s if self._reading.follow else self._look_s
            self._stream = stream = await self._opened(timeout_s)
            self._answered = False
            if self._closed.is_set() or self.moving or self._refusal is not None:
                stream.end()
        response: bytes | None = None
        try:
            response = await stream.read()
        finally:
            if response is None:
                stream.end()
                self._stream = None
                self._end_span()
        self._answered |= response is not None
        return response

    async def _opened(self, timeout_s: float) -> AsyncStream:
        method, request = METHODS["PullStream"], self.queues.request()
        if self._spans is None:
            return await self._connections.open(method, request, timeout_s)
        topics = {one.topic for one in self.queues.unfinished}
        span = self._spans.begin(receiving(topics, self._reading.group or ""))
        try:
            with within(span.request):
                stream = await self._connections.open(method, request, timeout_s)
        except BaseException as error:
            span.end(error)
            raise
        self._span = span
        return stream

    async def _lost(self, error: StrataError) -> None:
        if self._closed.is_set() or self.moving:
            return
        if error.fields.get("status") == grpc.StatusCode.DEADLINE_EXCEEDED.name:
            if not self._answered:  # what comes slowly must come within some stream
                self._look_s = min(2 * self._look_s, LONGEST_LOOK_S)
            try:
                await self._look_again()
                return
            except UnavailableError as failure:
                error = failure  # a service that stands still ends no stream
        if not isinstance(error, UnavailableError):
            raise error
        delay_s = self._backoff.next_delay_s()
        if delay_s is None:
            raise error
        self._set_interrupted(error)
        await self._connections.renew(DISPATCHER)
        await self._closed.wait(delay_s)

    async def _look_again(self) -> None:
        """For queues that are new, or that end earlier than they did."""
        queues = self.queues
        await self._connections.refresh()
        if self._reading.follow:
            queues.extend(await run_plan(self.run, self._make_plan()))
        else:
            queues.shorten(await run_plan(self.run, plan_ends(queues.unfinished)))


async def _commit_regularly(
    lane: "weakref.ref[AsyncLane]", closed: AsyncEvent, interval_s: float
) -> None:
    """Until the reader is closed, or nothing else holds it."""
    while not await closed.wait(interval_s):
        reader = lane()
        if reader is None:
            return
        await reader._commit_in_time()
        del reader


class AsyncLanes:
    """All of one reader's, and whose answer comes next. A broker that is away does not hold up the
    others: its lane tries again, forever if the reader follows, and else its error is raised when
    the others are read. A reader of one broker alone raises it at once."""

    def __init__(
        self, brokers: AsyncBrokers, make_plans: Callable[[], Callable[[], Plan]], reading: Reading
    ) -> None:
        """`make_plans`: for each lane what makes its plan."""
        self.all: list[AsyncLane] = []
        self.closed = AsyncEvent()
        self._brokers = brokers
        self._make_plans = make_plans
        self._reading = reading
        self._follow = reading.follow
        self._on_interruption = (
            None
            if reading.on_interruption is None
            else Callback("on_interruption", reading.on_interruption)
        )
        self._alone = False
        """There is one broker, for good."""
        self._failed: dict[str, StrataError] = {}
        """What kept this reader from brokers, of one that does not follow."""
        self._interrupted: set[str] = set()
        self._finding = AsyncOngoing()
        self._next = 0
        """The lane whose turn it is."""

    @property
    def paused(self) -> bool:
        """Nothing is left to read but what is paused."""
        open_lanes = [one for one in self.all if self._follow or not one.queues.ended]
        return bool(open_lanes) and all(one.queues.paused for one in open_lanes)

    async def begin(self) -> None:
        brokers = await self._brokers.all()
        self._alone = self._brokers.fixed or "" in brokers
        self._failed.clear()
        missing = await self._take_up(brokers)
        failure = next(iter(self._failed.values()), missing)
        if not self.all and failure is not None:
            raise failure

    async def _take_up(self, brokers: Mapping[str, AsyncBroker]) -> StrataError | None:
        """A lane for each broker that has none. An error of those that have nothing to read."""
        missing: StrataError | None = None
        known = {lane.broker for lane in self.all}
        for name, broker in brokers.items():
            if name in known:
                continue
            lane = AsyncLane(
                broker,
                self._make_plans(),
                self._reading,
                self._brokers.settings,
                self.closed,
                self._on_interruption if self._alone else partial(self._set_interrupted, name),
            )
            try:
                await lane.begin()
            except NotFoundError as error:
                missing = error
                continue
            except UnavailableError as error:
                if self._alone:
                    raise
                if not self._follow:
                    self._fail(name, error)
                    continue
                self._set_interrupted(name, error)
                lane.commit_regularly()  # it looks for its queues when it is asked
            self.all.append(lane)
        return missing

    def _fail(self, name: str, error: StrataError) -> None:
        self._set_interrupted(name, error)
        self._failed[name] = of_broker(error, name)

    def _set_interrupted(self, name: str, error: StrataError | None) -> None:
        """From whatever reads that lane."""
        before = len(self._interrupted)
        (self._interrupted.discard if error is None else self._interrupted.add)(name)
        if len(self._interrupted) == before:
            return
        if error is not None:
            error = of_broker(error, name)
        if self._on_interruption is not None:
            if error is not None or not self._interrupted:
                self._on_interruption(error)
        elif error is not None:
            log.warning("broker unavailable, not read: %s", error.message)
        else:
            log.warning("broker read again: %s", name)

    async def response(self, timeout_s: float | None) -> tuple[AsyncLane, bytes] | None:
        """The next answer; None when everything was read, or the reader was closed. TimeoutError
        when there is none within `timeout_s`."""
        if self._alone:
            (lane,) = self.all
            response = await lane.answers.result(lane.next_response, timeout_s)
            return None if response is None else (lane, response)
        clock = self._brokers.settings.clock
        end_ns = None if timeout_s is None else clock.monotonic_ns() + int(timeout_s * 1e9)
        while not self.closed.is_set():
            lanes = self._in_turn()
            if not lanes and not self._follow and not self.paused:
                self._raise_failed()
                return None
            left_s = None if end_ns is None else (end_ns - clock.monotonic_ns()) / 1e9
            if not lanes:
                if left_s is None:
                    refuse_paused()
                await self.closed.wait(min(_PAUSED_LOOK_S, max(0.0, left_s or 0.0)))
            first = await self._first(lanes, left_s)
            if first is not None:
                try:
                    response = await first.answers.result(first.next_response)
                except UnavailableError as error:
                    self._fail(first.broker, error)
                    continue
                if response is not None:
                    self._next = self.all.index(first) + 1
                    return first, response
            elif left_s is not None and left_s <= 0:
                raise TimeoutError
        return None

    def _in_turn(self) -> list[AsyncLane]:
        """Those with something to read, from the one whose turn it is."""
        begin = self._next % len(self.all) if self.all else 0
        return [
            lane
            for lane in self.all[begin:] + self.all[:begin]
            if not lane.queues.paused
            and lane.broker not in self._failed
            and (self._follow or not lane.queues.ended)
        ]

    async def _first(self, lanes: list[AsyncLane], timeout_s: float | None) -> AsyncLane | None:
        """One that has an answer; None when time has passed, or other brokers were found."""
        runs = [lane.answers for lane in lanes]
        for lane in lanes:
            lane.answers.begin(lane.next_response)
        if self._follow:
            self._finding.begin(self._find)
            runs.append(self._finding)
        if not runs:
            return None
        number = await AsyncOngoing.first(runs, timeout_s)
        if number is None:
            return None
        if number < len(lanes):
            return lanes[number]
        await self._take_up(await self._finding.result(self._find))
        return None

    async def _find(self) -> Mapping[str, AsyncBroker]:
        """The brokers by name, after a while."""
        if await self.closed.wait(self._reading.refresh_s):
            return {}
        return await self._brokers.all(int(self._reading.refresh_s * 1e9))

    def _raise_failed(self) -> None:
        """Everything is read. Raises what kept the reader from a broker, once: it is asked again
        when the reader is."""
        failed, self._failed = self._failed, {}
        for error in failed.values():
            raise error
