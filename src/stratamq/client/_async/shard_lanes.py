"""The lanes of a reader of several addresses: one for each broker name, read side by side."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from stratamq.client._async.lane import PAUSED_LOOK_S, AsyncLane
from stratamq.client._async.shards import AsyncShards
from stratamq.client.callbacks import Callback
from stratamq.client.consuming import refuse_paused
from stratamq.client.primitives import AsyncEvent, AsyncOngoing
from stratamq.client.shard_routes import of_broker
from stratamq.errors import NotFoundError, StrataError, UnavailableError
from stratamq.files.port import Clock

log = logging.getLogger(__name__)


class AsyncShardLanes:
    """See `AsyncLanes`. A broker that is away does not hold up the others: its lane tries again,
    for ever if the reader follows, and else its error is raised when the others are read."""

    def __init__(
        self,
        shards: AsyncShards,
        client: Any,
        make_lane: Callable[..., AsyncLane],
        closed: AsyncEvent,
        clock: Clock,
        *,
        follow: bool,
        refresh_s: float,
        on_interruption: Callable[[StrataError | None], None] | None,
    ) -> None:
        """`client` is that of all addresses, for brokers of one name."""
        self.all: list[AsyncLane] = []
        self._shards = shards
        self._client = client
        self._make_lane = make_lane
        self._closed = closed
        self._clock = clock
        self._follow = follow
        self._refresh_s = refresh_s
        self._on_interruption = (
            None if on_interruption is None else Callback("on_interruption", on_interruption)
        )
        self._alone = False
        """The brokers have one name."""
        self._failed: dict[str, StrataError] = {}
        """What kept this reader from brokers, of one that does not follow."""
        self._interrupted: set[str] = set()
        self._finding = AsyncOngoing()
        self._next = 0
        """The lane whose turn it is."""

    @property
    def paused(self) -> bool:
        open_lanes = [one for one in self.all if self._follow or not one.reading.ended]
        return bool(open_lanes) and all(one.reading.paused for one in open_lanes)

    async def begin(self) -> None:
        clients = await self._shards.clients()
        self._alone = not clients
        if self._alone:
            lane = self._make_lane(
                self._client, closed=self._closed, on_interruption=self._on_interruption
            )
            await lane.begin()
            self.all = [lane]
            return
        self._failed.clear()
        missing = await self._take_up(clients)
        if not self.all:
            raise next(iter(self._failed.values()), missing)

    async def _take_up(self, clients: dict[str, Any]) -> StrataError | None:
        """A lane for each broker that has none. An error of those that have nothing to read."""
        missing: StrataError | None = None
        known = {lane.broker for lane in self.all}
        for name, client in clients.items():
            if name in known:
                continue
            lane = self._make_lane(
                client,
                closed=self._closed,
                broker=name,
                on_interruption=partial(self._set_interrupted, name),
            )
            try:
                await lane.begin()
            except NotFoundError as error:
                missing = error
                continue
            except UnavailableError as error:
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
        if self._alone:
            (lane,) = self.all
            response = await lane.answers.result(lane.next_response, timeout_s)
            return None if response is None else (lane, response)
        end_ns = None if timeout_s is None else self._clock.monotonic_ns() + int(timeout_s * 1e9)
        while not self._closed.is_set():
            lanes = self._in_turn()
            if not lanes and not self._follow and not self.paused:
                return self._ended()
            left_s = None if end_ns is None else (end_ns - self._clock.monotonic_ns()) / 1e9
            if not lanes:
                if left_s is None:
                    refuse_paused()
                await self._closed.wait(min(PAUSED_LOOK_S, max(0.0, left_s or 0.0)))
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
            if not lane.reading.paused
            and lane.broker not in self._failed
            and (self._follow or not lane.reading.ended)
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

    async def _find(self) -> dict[str, Any]:
        """The brokers by name, after a while."""
        if await self._closed.wait(self._refresh_s):
            return {}
        return await self._shards.clients(int(self._refresh_s * 1e9))

    def _ended(self) -> None:
        """Everything is read. Raises what kept the reader from a broker, once: it is asked again
        when the reader is."""
        failed, self._failed = self._failed, {}
        for error in failed.values():
            raise error
