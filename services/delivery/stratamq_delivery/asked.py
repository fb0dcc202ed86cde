"""Operators' requests about single messages, from the call to its answer.

    asked ──► a record, or a copy ──► the fold has it: `end` ──► the log has flushed it: answered

The request is in memory. Its result is in the log, which alone decides: whatever ends a message
first answers all callers that wait for it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from stratamq.errors import StrataError, UnavailableError
from stratamq.follow.fold import FoldPlace

Wanted = TypeVar("Wanted")
Done = Callable[[StrataError | None], None]


class AskedFor(Generic[Wanted]):
    """By the message's offset in the log. Belongs to the event loop of the fold."""

    def __init__(self, followed: FoldPlace) -> None:
        self._followed = followed
        self._waiting: dict[int, list[tuple[Wanted, Done]]] = {}
        self._ended: list[tuple[int, list[tuple[Done, StrataError | None]]]] = []
        """Where the log has the end of a message, and what is answered once that is flushed."""

    def __contains__(self, offset: int) -> bool:
        return offset in self._waiting

    @property
    def offsets(self) -> list[int]:
        """The messages of which something is wanted, in the order in which it was asked."""
        return list(self._waiting)

    def ask(self, offset: int, wanted: Wanted, done: Done) -> None:
        self._waiting.setdefault(offset, []).append((wanted, done))

    def wanted(self, offset: int) -> Wanted | None:
        """What was asked first of this message counts."""
        waiting = self._waiting.get(offset)
        return waiting[0][0] if waiting else None

    def end(self, offset: int, at: int, verdict: Callable[[Wanted], StrataError | None]) -> None:
        """The log has at `at` what came of the message. `verdict`: what it is for who wanted
        this."""
        if waiting := self._waiting.pop(offset, None):
            self._ended.append((at, [(done, verdict(wanted)) for wanted, done in waiting]))

    def refuse(self, offset: int, error: StrataError) -> None:
        """Nothing comes of it."""
        for _, done in self._waiting.pop(offset, ()):
            done(error)

    def answer(self) -> None:
        """Answer what the log has flushed."""
        flushed = self._followed.flushed
        ready = [one for one in self._ended if one[0] < flushed]
        self._ended = [one for one in self._ended if one[0] >= flushed]
        for done, error in (one for _, some in ready for one in some):
            done(error)

    def give_up(self) -> None:
        """The log may not have what was decided: who waits is told so."""
        waiting = [done for some in self._waiting.values() for _, done in some]
        waiting += [done for _, some in self._ended for done, _ in some]
        self._waiting, self._ended = {}, []
        for done in waiting:
            done(UnavailableError("the delivery has begun again: ask again"))
