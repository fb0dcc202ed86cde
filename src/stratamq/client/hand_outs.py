"""Messages of a shared group that one client's workers have received, and the next requests."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import uuid4

from stratamq.client.group_receipts import GroupWorker, HandedFrame
from stratamq.files.port import Clock

LARGEST_HAND_OUT = 1_024
"""Messages of one hand-out."""
AHEAD_NS = 100_000_000
"""Workers take what is received ahead of them within about this time."""
LEAST_AHEAD = 64
"""For workers that are slower, nothing is: it would be hidden from others for little gain."""


class HandedTogether(NamedTuple):
    """Messages, and when the first of them was first asked for, by the client's clock."""

    frames: list[HandedFrame]
    asked_ns: int

    def joined(self, frames: list[HandedFrame], asked_ns: int) -> "HandedTogether":
        if not self.frames:
            return HandedTogether(frames, asked_ns)
        return HandedTogether(self.frames + frames, min(self.asked_ns, asked_ns))


@dataclass(slots=True)
class _Pace:
    """How fast the workers of a kind take messages."""

    since_ns: int
    taken: int = 0
    ahead: int = 0
    """How many messages are kept for them: so many they took lately within `AHEAD_NS`."""

    def take(self, count: int, now_ns: int) -> None:
        self.taken += count
        if (passed_ns := now_ns - self.since_ns) >= AHEAD_NS:
            lately = self.taken * AHEAD_NS // passed_ns
            self.ahead = min(LARGEST_HAND_OUT, lately) if lately >= LEAST_AHEAD else 0
            self.since_ns, self.taken = now_ns, 0


@dataclass(slots=True)
class JointWish:
    """What workers of one kind have one hand-out for."""

    kind: GroupWorker
    attempt_id: str
    asked_ns: int
    """When the attempt was first made."""
    wanted: list[tuple[int, int]] = field(default_factory=list)
    """Which of the workers, and how many messages each wants."""
    ahead: int = 0
    """How many more are kept for their next calls."""

    def as_worker(self) -> GroupWorker:
        wanted = sum([count for _, count in self.wanted])
        most = max(wanted, min(wanted + self.ahead, LARGEST_HAND_OUT))
        return replace(self.kind, max_messages=most, attempt_id=self.attempt_id)


class HandOuts:
    """Used under the guard of the calls about one group and topic."""

    def __init__(self, clock: Clock) -> None:
        self.unanswered: list[JointWish] = []
        """Each call that had no answer. The next call takes its attempt id, and gets what that
        call was given: there are no more of them than calls at once."""
        self._clock = clock
        self._left: dict[GroupWorker, deque[HandedTogether]] = {}
        """What was received ahead; what an unanswered call was given beyond what the next one asks
        for; and what was given to workers that were cancelled meanwhile."""
        self._filling: set[GroupWorker] = set()
        """A call for more is under way, or a worker is about to make it."""
        self._paces: dict[GroupWorker, _Pace] = {}

    def ready(self, worker: GroupWorker) -> HandedTogether | None:
        """All that a worker wants, if it is here. None: it is to make a call, which brings more for
        the next ones, too."""
        kind, most = replace(worker, max_messages=0), worker.max_messages
        left = self._left.get(kind)
        if not left or any(self._is_late(kind, given) for given in left):
            return None
        there = self._count(kind) - most
        if 0 <= there < self._ahead_of(kind) and kind not in self._filling:
            self._filling.add(kind)
            return None
        return self._take(kind, most) if there >= 0 else None

    def here(self, worker: GroupWorker) -> HandedTogether:
        """What is left for a worker, without a call."""
        kind = replace(worker, max_messages=0)
        if any(self._is_late(kind, given) for given in self._left.get(kind, ())):
            return HandedTogether([], 0)
        return self._take(kind, worker.max_messages)

    def plan(self, workers: Sequence[GroupWorker]) -> tuple[list[HandedTogether], list[JointWish]]:
        """What is here for the workers, and what is asked for the others."""
        found: list[HandedTogether] = []
        wishes: dict[GroupWorker, JointWish] = {}
        for number, worker in enumerate(workers):
            kind, most = replace(worker, max_messages=0), worker.max_messages
            found.append(self._take(kind, most))
            missing, ahead = most - len(found[-1].frames), self._ahead_of(kind)
            if kind not in wishes and (missing or self._count(kind) < ahead):
                wishes[kind] = self._wish(kind)
                wishes[kind].ahead = ahead
                self._filling.add(kind)
            if missing:
                wishes[kind].wanted.append((number, missing))
        return found, [*wishes.values()]

    def answered(
        self, wish: JointWish, given: list[HandedFrame], found: list[HandedTogether]
    ) -> None:
        """Give the workers of a wish their parts, and keep what is ahead of them."""
        self._filling.discard(wish.kind)
        at = 0
        for number, most in wish.wanted:
            found[number] = found[number].joined(given[at : at + most], wish.asked_ns)
            at += most
        self._paced(wish.kind, min(at, len(given)))
        self.keep(wish.kind, HandedTogether(given[at:], wish.asked_ns))

    def failed(self, wishes: Sequence[JointWish]) -> None:
        """There was no answer."""
        self._filling.difference_update([wish.kind for wish in wishes])
        self.unanswered += wishes

    def late_in_s(self) -> float | None:
        """When the time of something that is left will be half over. None: nothing is left."""
        lates = [
            given.asked_ns / 1e9 + kind.invisible_s / 2
            for kind, left in self._left.items()
            for given in left
        ]
        return max(0.0, min(lates) - self._clock.monotonic_ns() / 1e9) if lates else None

    def take_unanswered(self) -> list[JointWish]:
        """The calls without an answer whose messages may still be held."""
        lost, self.unanswered = self.unanswered, []
        now_ns = self._clock.monotonic_ns()
        return [one for one in lost if now_ns - one.asked_ns < one.kind.invisible_s * 1e9]

    def _take(self, kind: GroupWorker, most: int) -> HandedTogether:
        """What is left for a worker, at most so many messages."""
        found, left = HandedTogether([], 0), self._left.get(kind)
        while left and len(found.frames) < most:
            first, missing = left[0], most - len(found.frames)
            found = found.joined(first.frames[:missing], first.asked_ns)
            del first.frames[:missing]
            if not first.frames:
                left.popleft()
        if not left:
            self._left.pop(kind, None)
        self._paced(kind, len(found.frames))
        return found

    def _paced(self, kind: GroupWorker, taken: int) -> None:
        now_ns = self._clock.monotonic_ns()
        self._paces.setdefault(kind, _Pace(now_ns)).take(taken, now_ns)

    def _count(self, kind: GroupWorker) -> int:
        return sum([len(given.frames) for given in self._left.get(kind, ())])

    def _ahead_of(self, kind: GroupWorker) -> int:
        """How many messages are kept for the workers of this kind. A lease is one worker's: what it
        does not have yet goes to any worker."""
        pace = self._paces.get(kind)
        return 0 if pace is None or kind.leased else pace.ahead

    def _wish(self, kind: GroupWorker) -> JointWish:
        for number, one in enumerate(self.unanswered):
            if one.kind == kind:
                del self.unanswered[number]
                return JointWish(kind, one.attempt_id, one.asked_ns)
        return JointWish(kind, uuid4().hex, self._clock.monotonic_ns())

    def keep(self, worker: GroupWorker, given: HandedTogether) -> None:
        """For the next one of its kind."""
        if given.frames:
            self._left.setdefault(replace(worker, max_messages=0), deque()).append(given)

    def take_out(self, *, late_only: bool) -> list[HandedFrame]:
        """What is left, or that of it whose time is half over: who gets a message has the other
        half for it."""
        if not self._left:
            return []
        taken: list[HandedFrame] = []
        kept: dict[GroupWorker, deque[HandedTogether]] = {}
        for kind, left in self._left.items():
            for given in left:
                if late_only and not self._is_late(kind, given):
                    kept.setdefault(kind, deque()).append(given)
                else:
                    taken += given.frames
        self._left = kept
        return taken

    def _is_late(self, kind: GroupWorker, given: HandedTogether) -> bool:
        """Who gets a message has at least half of its time for it."""
        return self._clock.monotonic_ns() - given.asked_ns >= kind.invisible_s * 500_000_000
