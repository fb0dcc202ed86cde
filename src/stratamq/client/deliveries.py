"""The places of messages in what their producer has sent."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

from stratamq.client.units import Batch, BatchRun, Chunk, SendingUnit, Single
from stratamq.client.values import SendResult


class MessagePlace:
    """A message's place in its unit. As small as can be: there is one for each message."""

    __slots__ = ("_index", "_run", "_unit")

    _unit: SendingUnit
    _run: BatchRun | None
    _index: int

    @property
    def done(self) -> bool:
        return self._unit.settled

    def _outcome(self) -> SendResult:
        unit = self._unit
        unit.seen = True
        if isinstance(unit, Batch):
            assert self._run is not None
            result = unit.result_of(self._run, self._index)
            if result.error is not None:
                unit.told.add(self._run.first + self._index)
            return result.check()
        assert isinstance(unit, Single) and unit.result is not None
        return unit.result.check()


D = TypeVar("D", bound=MessagePlace)


class Deliveries(Sequence[D], Generic[D]):
    """The deliveries of messages that were added together; each is made when it is asked for."""

    def __init__(
        self, make: Callable[[SendingUnit, BatchRun, int], D], chunks: Sequence[Chunk]
    ) -> None:
        self._make = make
        self._chunks = chunks
        self._count = sum(chunk[3] for chunk in chunks)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> D: ...
    @overload
    def __getitem__(self, index: slice) -> list[D]: ...
    def __getitem__(self, index: int | slice) -> D | list[D]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        number = index + self._count if index < 0 else index
        for batch, run, first, count in self._chunks:
            if 0 <= number < count:
                return self._make(batch, run, first + number)
            number -= count
        raise IndexError(index)
