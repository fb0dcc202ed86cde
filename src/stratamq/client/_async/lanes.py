"""The lanes of a reader: one for each broker, read side by side."""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from stratamq.client._async.brokers import AsyncBroker, AsyncBrokers
from stratamq.client._async.lane import PAUSED_LOOK_S, AsyncLane
from stratamq.client.callbacks import Callback
from stratamq.client.consuming import Plan, refuse_paused
from stratamq.client.primitives import AsyncEvent, AsyncOngoing
from stratamq.client.reading import Reading
from stratamq.client.shard_routes import of_broker
from stratamq.errors import NotFoundError, StrataError, UnavailableError

log = logging.getLogger(__name__)


class AsyncLanes:
    """All of one reader's, and whose answer comes next. A broker that is away does not hold up the
    others: its lane tries again, for ever if the reader follows, and else its error is raised when
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
            log.warning("not read for now: %s", error.message)
        else:
            log.warning("read again: broker %s", name)

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
                await self.closed.wait(min(PAUSED_LOOK_S, max(0.0, left_s or 0.0)))
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
