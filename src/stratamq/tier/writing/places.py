"""Where in the log what waits begins: the lowest place, whatever order it comes and goes in."""

import heapq


class Places:
    """Log offsets. Each one that is put is removed once; no two of them are equal."""

    def __init__(self) -> None:
        self._put: list[int] = []
        self._removed: list[int] = []
        """Two heaps: those that came, and those of them that went."""

    def put(self, place: int) -> None:
        heapq.heappush(self._put, place)

    def remove(self, place: int) -> None:
        heapq.heappush(self._removed, place)
        while self._removed and self._removed[0] == self._put[0]:
            heapq.heappop(self._removed)
            heapq.heappop(self._put)

    @property
    def lowest(self) -> int | None:
        """None: there is none."""
        return self._put[0] if self._put else None
