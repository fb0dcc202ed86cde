# Generated from _async/lanes.py by scripts/gen_sync_client.py (`make client`).
"""The lanes of a reader: one for a broker, or for a cluster of one name."""

from typing import Protocol

from stratamq.client._sync.lane import Lane


class Lanes(Protocol):
    """All of a reader's, and whose answer comes next."""

    @property
    def all(self) -> list[Lane]: ...

    @property
    def paused(self) -> bool:
        """Nothing is left to read but what is paused."""

    def begin(self) -> None: ...

    def response(self, timeout_s: float | None) -> tuple[Lane, bytes] | None:
        """The next answer; None when everything was read, or the reader was closed. TimeoutError
        when there is none within `timeout_s`."""


class OneLane:
    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.all = [lane]
        self.begin = lane.begin

    @property
    def paused(self) -> bool:
        return self._lane.reading.paused

    def response(self, timeout_s: float | None) -> tuple[Lane, bytes] | None:
        lane = self._lane
        response = lane.answers.result(lane.next_response, timeout_s)
        return None if response is None else (lane, response)
