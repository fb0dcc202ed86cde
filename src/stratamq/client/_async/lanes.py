"""The lanes of a reader: one for a broker, or for a cluster of one name."""

from typing import Protocol

from stratamq.client._async.lane import AsyncLane


class AsyncLanes(Protocol):
    """All of a reader's, and whose answer comes next."""

    @property
    def all(self) -> list[AsyncLane]: ...

    @property
    def paused(self) -> bool:
        """Nothing is left to read but what is paused."""

    async def begin(self) -> None: ...

    async def response(self, timeout_s: float | None) -> tuple[AsyncLane, bytes] | None:
        """The next answer; None when everything was read, or the reader was closed. TimeoutError
        when there is none within `timeout_s`."""


class AsyncOneLane:
    def __init__(self, lane: AsyncLane) -> None:
        self._lane = lane
        self.all = [lane]
        self.begin = lane.begin

    @property
    def paused(self) -> bool:
        return self._lane.reading.paused

    async def response(self, timeout_s: float | None) -> tuple[AsyncLane, bytes] | None:
        lane = self._lane
        response = await lane.answers.result(lane.next_response, timeout_s)
        return None if response is None else (lane, response)
