"""The log's side of Follow: what each follower receives, and what it has reported.

What was appended lately is remembered as the writer knew it for nothing: lengths and runs of each
pass. A follower that keeps up gets these, several passes in one event; one that is behind gets bare
ranges and scans them itself, so that the log never reads cold data for others. Who ships the log's
bytes reads no frames, and gets nothing else. Bare ranges end
where a frame is known to begin: at a segment's end, at a remembered pass, or at the horizon.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stratamq.follow.protocol import Closing, Event, Opened, Queue, Report
from stratamq.follow.protocol import Run as FollowRun
from stratamq.formats.log_state import FollowerState
from stratamq_commitlog.log_state import LogOffsets, StateCell
from stratamq_commitlog.messages import Appended

MAX_EVENT_MESSAGES = 4_096
_REMEMBERED_MESSAGES = 65_536
_REMEMBERED_PASSES = 4_096
MAX_ENDS = 8_192
"""Ends of passes that are not confirmed yet; without a slave they accumulate."""
STEADY_SECONDS, SHORT_SECONDS, LONG_SECONDS = 0.002, 0.005, 0.010
UNHURRIED_SECONDS = 0.050
CONFIRMED_SECONDS = 0.020
"""To replication, from one confirmed offset to the next without bytes. With one message in flight
each goes with the bytes of the next message, instead of in an event and a call of its own here, at
the slave and at its log."""
LARGE_EVENT_BYTES = 128 << 10
"""In 5 ms: 26 MB a second."""
WHOLE_EVENT_BYTES = 1 << 20


@dataclass(slots=True)
class KnownFollower:
    """What is known of a follower by name; kept when its connection ends."""

    name: str
    connections: int = 0
    applied: int = 0
    durable: int = 0
    durable_store_timestamp_ms: int = 0
    released: int = 0
    end_reported: bool = False
    """It has reported since it received the end of the log, or as it left: what it defers it has
    written."""


class FollowHub:
    """All followers of one log. Single-threaded."""

    def __init__(self, segment_bytes: int, offsets: LogOffsets, states: StateCell) -> None:
        """Followers receive generations and role when they open: `end_all` after a change."""
        self.followers: dict[str, KnownFollower] = {}
        self.offsets = offsets
        self._states = states
        self.closing = False
        """The log's end stands: each stream ends where its horizon does."""
        self._segment_bytes = segment_bytes
        self._recent: deque[Appended] = deque()
        self._recent_messages = 0
        self._ends: deque[int] = deque()
        """Ends of passes above *confirmed*, the newest among them; of many only some."""
        self._sessions: set[Session] = set()

    @property
    def generation(self) -> int:
        return self._states.now.generation

    def follower_states(self) -> tuple[FollowerState, ...]:
        """What is known of each follower, as far behind as it is now."""
        return tuple(
            FollowerState(
                one.name,
                one.connections > 0,
                one.applied,
                one.durable,
                max(0, self.offsets.confirmed - one.applied),
                one.durable_store_timestamp_ms,
            )
            for one in self.followers.values()
        )

    def appended(self, entry: Appended) -> None:
        """Remember a pass. Passes come in order, without gaps."""
        self._recent.append(entry)
        self._ends.append(entry.end)
        if len(self._ends) > MAX_ENDS:
            # *confirmed* then moves by larger steps, and ends where it would have.
            self._ends = deque(end for at, end in enumerate(reversed(self._ends)) if at % 2 == 0)
            self._ends.reverse()
        self._recent_messages += len(entry.lengths)
        while (
            self._recent_messages > _REMEMBERED_MESSAGES or len(self._recent) > _REMEMBERED_PASSES
        ):
            self._recent_messages -= len(self._recent.popleft().lengths)

    def unconfirmed(self, end: int) -> None:
        """After a start: what is above *confirmed* ends there, and was appended before."""
        self._ends.append(end)

    def last_end(self, offset: int) -> int:
        """The last end of a pass at or below `offset`, which is to become *confirmed*.

        A slave acknowledges whatever bytes it has: events end on frames all the same.
        """
        last = self.offsets.confirmed
        while self._ends and self._ends[0] <= offset:
            last = self._ends.popleft()
        return last

    def moved(self) -> None:
        """Some offset moved: wake each session that may have something to send."""
        for session in list(self._sessions):
            session.poke()

    def open(
        self,
        name: str,
        *,
        replicable: bool,
        generation: int,
        position: int,
        wake: Callable[[], None],
    ) -> tuple[Opened, "Session"]:
        """Begin a stream. What the follower must drop is everything from `cut_to` on."""
        offsets, log_state = self.offsets, self._states.now
        current = log_state.generations[-1]
        horizon = offsets.replicable if replicable else offsets.confirmed
        cut_to = min(self._cut_to(generation, position), horizon)
        state = self.followers.setdefault(name, KnownFollower(name))
        state.connections += 1
        # Streams end before the log does: a follower that has all of it may open once more.
        state.end_reported = self.closing and state.end_reported and cut_to >= state.durable
        state.applied = cut_to
        if cut_to < state.durable:
            # What it will have on disk after the cut it has yet to report.
            state.durable, state.durable_store_timestamp_ms = cut_to, 0
        state.released = min(state.released, cut_to)
        session = Session(self, state, cut_to, replicable, wake)
        self._sessions.add(session)
        opened = Opened(
            generation=current.number,
            generation_start=current.start,
            cut_to=cut_to,
            minimum=offsets.minimum,
            confirmed=offsets.confirmed,
            flushed=offsets.flushed,
            segment_bytes=self._segment_bytes,
            is_slave=log_state.is_slave,
        )
        return opened, session

    def end_all(self) -> None:
        """End every stream: the log is about to be cut. Followers open again and receive it."""
        for session in list(self._sessions):
            session.ended = True
            session.poke()
        self._recent.clear()
        self._recent_messages = 0

    def unfinished(self, names: Sequence[str]) -> list[str]:
        """Those that have not reported, since the closing was sent or as they left, that all that
        is confirmed is durable. What is not confirmed no follower has received."""
        states, end = self.followers, self.offsets.confirmed
        return [
            name
            for name in names
            if name not in states or states[name].durable < end or not states[name].end_reported
        ]

    def released_by_all(self, offset: int) -> bool:
        """Whether every connected follower has released what is below `offset`."""
        return all(session.state.released >= offset for session in self._sessions)

    def _cut_to(self, generation: int, position: int) -> int:
        """The lesser of the position and its generation's end; the minimum if that is unknown.

        A slave's list may hold a generation twice: the later one counts.
        """
        minimum, generations = self.offsets.minimum, self._states.now.generations
        for index, known in reversed(list(enumerate(generations))):
            if known.number == generation:
                following = generations[index + 1 : index + 2]
                end = following[0].start if following else self.offsets.appended
                return max(minimum, min(position, end))
        return minimum

    def _forget(self, session: "Session") -> None:
        if session in self._sessions:
            self._sessions.remove(session)
            session.state.connections -= 1

    def _from(self, position: int, limit: int) -> tuple[list[Appended], int]:
        """Remembered passes from `position` to `limit` in one segment, else where to scan to."""
        recent = self._recent
        segment_end = (position // self._segment_bytes + 1) * self._segment_bytes
        limit = min(limit, segment_end)
        if not recent or position < recent[0].start:
            return [], min(limit, recent[0].start) if recent else limit
        taken: list[Appended] = []
        messages = 0
        index = self._index_of(position)
        if recent[index].start != position:
            return [], min(limit, recent[index].end)
        while index < len(recent):
            entry = recent[index]
            if entry.end > limit:
                break
            if taken and messages + len(entry.lengths) > MAX_EVENT_MESSAGES:
                break
            taken.append(entry)
            messages += len(entry.lengths)
            index += 1
        if not taken:
            return [], limit
        return taken, taken[-1].end

    def _index_of(self, position: int) -> int:
        """The remembered pass that holds `position`, looking from the newest."""
        recent = self._recent
        index = len(recent) - 1
        while index > 0 and recent[index].start > position:
            index -= 1
        return index


class Session:
    """One stream to one follower. `next` until it is None; then wait for `wake`."""

    def __init__(
        self,
        hub: FollowHub,
        state: KnownFollower,
        position: int,
        replicable: bool,
        wake: Callable[[], None],
    ) -> None:
        self.state = state
        self.ended = False
        """The log was cut: the stream must end without a closing."""
        self._hub = hub
        self._position = position
        self._replicable = replicable
        self._wake = wake
        self._announced = (-1, -1, -1)
        self._unhurried = self._by_queue = False
        self._waited_for: set[Queue] = set()
        self._looked = position
        """Below, nothing that it has not received is in a queue that callers wait for."""
        self._found = False
        """Something behind that is, or may be."""
        self._closed = False

    @property
    def waiting_bytes(self) -> int:
        """How much of the log it may receive and has not."""
        return self._horizon() - self._position

    @property
    def is_ending(self) -> bool:
        """Nothing is held back."""
        return self.ended or self._hub.closing

    @property
    def is_unhurried(self) -> bool:
        """What it is to receive next may come later, together with more. Each pass is looked at
        once."""
        if self._unhurried or not self._by_queue:
            return self._unhurried
        horizon, queues = self._horizon(), self._waited_for
        while self._looked < horizon and not self._found:
            taken, end = self._hub._from(self._looked, horizon)
            # What is not remembered may be in any queue.
            self._found = not taken or any(run[:2] in queues for one in taken for run in one.runs)
            self._looked = self._looked if self._found else end
        return not self._found

    @property
    def is_hurried(self) -> bool:
        """What it is to receive next is not held back until more comes. Replication waits for bytes
        with what is confirmed."""
        if self.is_ending:
            return True
        return not self.is_unhurried and (not self._replicable or self.waiting_bytes > 0)

    def poke(self) -> None:
        self._wake()

    def next(self) -> Event | Closing | None:
        """The next thing to send; None when there is nothing."""
        hub = self._hub
        if self.ended or self._closed:
            return None
        horizon = self._horizon()
        if self._position < horizon:
            taken, end = hub._from(self._position, horizon)
            if end > self._position:
                return self._event(taken, end)
        if hub.closing and self._position >= horizon:
            if self._announced != self._news():
                return self._event([], self._position)
            self._closed = True
            return Closing(self._position)
        if self._announced != self._news():
            return self._event([], self._position)
        return None

    def report(self, report: Report) -> None:
        state = self.state
        state.applied = report.applied
        state.durable = report.durable
        state.durable_store_timestamp_ms = report.durable_store_timestamp_ms
        state.released = report.released
        self._unhurried, self._by_queue = report.unhurried, report.by_queue
        self._waited_for.update(report.began)
        self._waited_for.difference_update(report.ended)
        self._looked, self._found = self._position, False
        state.end_reported = state.end_reported or self._closed or report.leaving

    def close(self) -> None:
        self._hub._forget(self)

    def _horizon(self) -> int:
        offsets = self._hub.offsets
        return offsets.replicable if self._replicable else offsets.confirmed

    def _news(self) -> tuple[int, int, int]:
        """What an event without a range carries; of what is confirmed, to those that ship bytes."""
        offsets = self._hub.offsets
        return offsets.flushed, offsets.minimum, offsets.confirmed if self._replicable else -1

    def _event(self, taken: list[Appended], end: int) -> Event:
        offsets = self._hub.offsets
        self._announced = self._news()
        lengths: NDArray[np.uint32] | None = None
        runs: list[FollowRun] | None = None
        if taken and not self._replicable:
            lengths = taken[0].lengths
            runs = list(taken[0].runs)
            if len(taken) > 1:
                lengths = np.concatenate([entry.lengths for entry in taken])
                runs = [run for entry in taken for run in entry.runs]
        start, self._position = self._position, end
        self._looked, self._found = max(self._looked, end), False
        return Event(
            generation=self._hub.generation,
            start=start,
            end=end,
            confirmed=offsets.confirmed if self._replicable else max(offsets.confirmed, end),
            flushed=offsets.flushed,
            minimum=offsets.minimum,
            lengths=lengths,
            runs=runs,
        )


class EventPace:
    """How often one stream's follower receives an event: pure, so that it can be tested without a
    clock. `steady`: large events are sent as often as small ones, because producers wait for what
    this follower does with them.

    An event costs a follower 0.2 to 0.5 ms whatever it holds, and the log a third of that for each
    follower. A message that comes alone is announced at once; while more comes, every 5 ms; and
    once events are large, so that no consumer waits for single messages, every 10 ms or as soon as
    a whole event's worth is there. A follower that producers wait for receives one every 2 ms, and
    what is confirmed with its bytes where these come soon; what no caller waits for goes every
    50 ms.
    """

    def __init__(self, *, steady: bool) -> None:
        self._steady = steady
        self._spoke_at = self._confirmed_at = 0.0
        self._pause = 0.0
        self._confirmed = -1

    def spoke(self, now: float, event_bytes: int, confirmed: int = -1) -> None:
        self._spoke_at = now
        if confirmed != self._confirmed:
            self._confirmed, self._confirmed_at = confirmed, now
        if not event_bytes:
            return  # only *flushed* or the minimum moved
        if self._steady:
            self._pause = STEADY_SECONDS
        else:
            self._pause = LONG_SECONDS if event_bytes >= LARGE_EVENT_BYTES else SHORT_SECONDS

    def hurry(self) -> None:
        """A caller has begun to wait: the next event follows without a pause."""
        self._pause = 0.0

    def early(self, now: float, waiting_bytes: int, unhurried: bool = False) -> float:
        """How many seconds too early it is to announce so much; 0: announce."""
        if waiting_bytes >= WHOLE_EVENT_BYTES:
            return 0.0
        pause = UNHURRIED_SECONDS if unhurried else self._pause
        since = self._spoke_at + pause
        if self._steady and not waiting_bytes:
            since = max(since, self._confirmed_at + CONFIRMED_SECONDS)
        return max(0.0, since - now)
