"""What the members of a shared group have of one queue: pure, no clock, no files, no event loop.

    floor               next
    │ finished │ hold A │ finished │ hold B │ passed over │   … not handed out

An offset between `floor` and `next` is in exactly one run: *finished*, held by one hand-out
(`Hold`), or *passed over*: an earlier message of its message group was unfinished. Below `floor`
everything is finished.

Every change is one of the entries of `entries.py`, given to `apply`. An entry that no longer fits
(the hand-out does not hold the offset any more) changes nothing there: entries are taken in the
order of the log, and the first one counts.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple, Protocol

from stratamq.errors import BusyError, ExpiredReceiptError
from stratamq_delivery.entries import (
    Bounds,
    Buried,
    Completed,
    HandedOut,
    Moved,
    PassedOver,
    Receipt,
    RunsEntry,
    Started,
)
from stratamq_delivery.runs import Runs

MAX_UNFINISHED = 100_000
"""Messages of a group in one queue that are handed out and not finished."""


class Hold(NamedTuple):
    """One hand-out. Its messages are hidden from the group until `until_ms`, store time."""

    token: int
    attempt: int
    until_ms: int
    client: str
    leased: bool = False
    """They stay hidden as long as the client's lease lasts, too."""


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str


FINISHED = _Kind("finished")
PASSED_OVER = _Kind("passed over")

Holder = Hold | _Kind


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where a hold's messages lie: all within [`low`, `high`), `count` of them."""

    hold: Hold
    low: int
    high: int
    count: int


class ClientLeases(Protocol):
    """Until when each client of the group has said that it lives, store time."""

    def get(self, client: str, default: int, /) -> int: ...


class SharedQueue:
    """Applies entries, finds what can be handed out, and judges receipts."""

    def __init__(self, floor: int, leases: ClientLeases) -> None:
        self._leases = leases
        self._runs: Runs[Holder] = Runs(floor)
        self._extents: dict[int, _Extent] = {}
        self._times: list[tuple[int, int]] = []
        """A heap of (until_ms, token). An item whose hold is gone, or has more time by now, is put
        right when it comes up."""
        self._unfinished = 0
        self._passed_over = 0

    def copy(self) -> "SharedQueue":
        """Costs what copying lists of its runs costs: 2 ms for 100 000."""
        other = SharedQueue(self.floor, self._leases)
        other._runs, other._extents = self._runs.copy(), self._extents.copy()
        other._times, other._unfinished = self._times[:], self._unfinished
        other._passed_over = self._passed_over
        return other

    @property
    def floor(self) -> int:
        return self._runs.first

    @property
    def next(self) -> int:
        return self._runs.end

    @property
    def unfinished(self) -> int:
        """Messages between floor and next that are not finished."""
        return self._unfinished

    @property
    def holds(self) -> Iterator[Hold]:
        return (extent.hold for extent in self._extents.values())

    def __iter__(self) -> Iterator[tuple[int, int, Holder]]:
        return iter(self._runs)

    def runs(self, offset: int | None) -> Iterator[tuple[int, int, Holder]]:
        """All runs, or the message at an offset alone; none of one that is no run's."""
        if offset is None:
            return iter(self._runs)
        inside = self.floor <= offset < self.next
        return self._runs.within(offset, offset + inside)

    # --- changes ---

    def apply(self, entry: RunsEntry | Started) -> None:
        """In the order of the log; every member of the group's broker comes to the same state."""
        match entry:
            case HandedOut():
                self._give(entry, lambda holder: holder is not FINISHED, _hold_of(entry))
            case Completed() | Buried():
                self._give(entry, lambda holder: _fits(holder, entry.token), FINISHED)
            case Moved():
                self._give(entry, lambda holder: _fits(holder, entry.token), _hold_of(entry.new))
            case PassedOver():
                self._give(entry, lambda holder: holder is None, PASSED_OVER)
            case Started():
                self._finish_below(entry.floor)
        self._advance()

    def restore(self, entry: RunsEntry | Started) -> None:
        """An entry of `whole`: what it names is as it says, whatever was known before."""
        match entry:
            case HandedOut():
                self._give(entry, lambda _: True, _hold_of(entry))
            case Completed() | Buried():
                self._give(entry, lambda _: True, FINISHED)
            case PassedOver():
                self._give(entry, lambda _: True, PASSED_OVER)
            case Started():
                self._finish_below(entry.floor)
        self._advance()

    def whole(self, start: int, most: int) -> tuple[list[RunsEntry], int]:
        """The state from `start` on as entries, at most so many runs, and where they end."""
        entries: list[RunsEntry] = []
        end = start = max(start, self.floor)
        for a, b, holder in self._runs.within(start, self.next):
            if most == 0:
                break
            most -= 1
            end = b
            run = ((a, b),)
            before = entries[-1] if entries else None
            if isinstance(holder, Hold):
                if isinstance(before, HandedOut) and before.token == holder.token:
                    entries[-1] = replace(before, runs=before.runs + run)
                else:
                    entries.append(_entry_of(holder, run))
            else:
                entries.append(Completed(run, 0) if holder is FINISHED else PassedOver(run))
        return entries, end

    # --- questions ---

    def until_ms(self, hold: Hold) -> int:
        """When the messages of a hold are ready again."""
        lease_ms = self._leases.get(hold.client, 0) if hold.leased else 0
        return max(hold.until_ms, lease_ms)

    def held(self, offset: int) -> Hold | None:
        """The hand-out that has it."""
        holder = self._runs.at(offset) if self.floor <= offset < self.next else None
        return holder if isinstance(holder, Hold) else None

    def is_free(self, offset: int, token: int, now_ms: int) -> bool:
        """Whether it may be handed out: this hand-out has it, and its time is over; 0: none has had
        it."""
        if offset >= self.next:
            return not token
        holder = self._runs.at(offset) if offset >= self.floor else FINISHED
        if isinstance(holder, Hold):
            return holder.token == token and self.until_ms(holder) <= now_ms
        return holder is PASSED_OVER and not token

    def has_all(self, token: int, start: int, end: int, now_ms: int) -> bool:
        """Whether this hand-out has all of [`start`, `end`), and its time is not over."""
        run = next(self._runs.within(start, end), None)
        if run is None or run[:2] != (start, end) or not isinstance(run[2], Hold):
            return False
        return run[2].token == token and now_ms < self.until_ms(run[2])

    def first_unfinished(self, start: int, end: int) -> int | None:
        """In [`start`, `end`); what was never handed out is not finished."""
        start = max(start, self.floor)
        for a, _, holder in self._runs.within(start, min(end, self.next)):
            if holder is not FINISHED:
                return a
        first = max(start, self.next)
        return first if first < end else None

    def has_any(self, tokens: Iterable[int]) -> bool:
        """Whether a hand-out with one of these tokens has messages."""
        return not self._extents.keys().isdisjoint(tokens)

    def hand_out(self, token: int) -> tuple[Hold, list[Bounds]] | None:
        """A hand-out with the messages that it still has. None: it has none."""
        extent = self._extents.get(token)
        if extent is None:
            return None
        within = self._runs.within(extent.low, extent.high)
        return extent.hold, [(start, end) for start, end, one in within if one == extent.hold]

    def ready(self, now_ms: int, most: int) -> list[tuple[Bounds, Hold]]:
        """Runs whose time is over, the longest ready first, `most` messages at the most. They stay
        what they are until they are handed out again."""
        found: list[tuple[Bounds, Hold]] = []
        looked_at: list[tuple[int, int]] = []
        while most > 0 and (until_ms := self.next_ready_ms()) is not None and until_ms <= now_ms:
            item = heappop(self._times)
            looked_at.append(item)
            extent = self._extents[item[1]]
            for start, end, holder in self._runs.within(extent.low, extent.high):
                if holder == extent.hold and most > 0:
                    end = min(end, start + most)
                    found.append(((start, end), extent.hold))
                    most -= end - start
        for item in looked_at:
            heappush(self._times, item)
        return found

    def next_ready_ms(self) -> int | None:
        """When the next message is ready; None: none is held."""
        while self._times:
            until_ms, token = self._times[0]
            extent = self._extents.get(token)
            if extent is None:
                heappop(self._times)
            elif until_ms < (later_ms := self.until_ms(extent.hold)):
                heapreplace(self._times, (later_ms, token))
            else:
                return until_ms
        return None

    def wanted(self, now_ms: int, most: int, end: int) -> list[tuple[Bounds, int, int]]:
        """What is handed out next of a queue that ends at `end`: what is ready again, what a power
        loss left behind, new messages; with the number of attempts, and the token of the hand-out
        that has them or 0. BusyError: too many are unfinished."""
        wanted: list[tuple[Bounds, int, int]] = []
        for bounds, hold in self.ready(now_ms, most):
            wanted.append((bounds, hold.attempt + 1, hold.token))
            most -= bounds[1] - bounds[0]
        for bounds in self.passed_over(most):
            wanted.append((bounds, 1, 0))
            most -= bounds[1] - bounds[0]
        first = self.next
        if most > 0 and first < end:
            most = min(most, self.room() if not wanted else MAX_UNFINISHED - self.unfinished)
        if most > 0 and first < end:
            wanted.append(((first, min(end, first + most)), 1, 0))
        return wanted

    def has_finished(self, offset: int) -> bool:
        if self.floor <= offset < self.next:
            return self._runs.at(offset) is FINISHED
        return offset < self.floor

    @property
    def has_passed_over(self) -> bool:
        return self._passed_over > 0

    def passed_over(self, most: int) -> list[Bounds]:
        """The first of them, `most` messages at the most. They are handed out before new ones."""
        found: list[Bounds] = []
        for start, end, holder in self._runs if self._passed_over else ():
            if most <= 0:
                break
            if holder is PASSED_OVER:
                found.append((start, min(end, start + most)))
                most -= end - start
        return found

    @property
    def has_room(self) -> bool:
        return self._unfinished < MAX_UNFINISHED

    def room(self) -> int:
        """How many more messages may be handed out. BusyError: none."""
        if not self.has_room:
            raise BusyError(
                f"{self._unfinished} messages of the queue are handed out and not acknowledged"
            )
        return MAX_UNFINISHED - self._unfinished

    def require(self, receipt: Receipt, now_ms: int, *, finishing: bool = False) -> bool:
        """ExpiredReceiptError: the receipt is not good any more, and why. An acknowledgement or a
        burial whose answer was lost may be given again within the receipt's time: False, nothing is
        left to do."""
        offset = receipt.offset
        holder = self._runs.at(offset) if self.floor <= offset < self.next else None
        if self.has_finished(offset):
            if finishing and now_ms < receipt.until_ms:
                return False
            raise ExpiredReceiptError(f"offset {offset} is finished already")
        if isinstance(holder, Hold) and holder.token == receipt.token:
            over_ms = now_ms - self.until_ms(holder)
        else:
            # A power loss may have taken its hand-out; then no other one holds the message.
            over_ms = now_ms - receipt.until_ms
            if isinstance(holder, Hold):
                raise ExpiredReceiptError(f"another hand-out has offset {offset}")
        if over_ms >= 0:
            raise ExpiredReceiptError(f"the time of the receipt ended {over_ms} ms ago")
        return True

    # --- inside ---

    def _finish_below(self, floor: int) -> None:
        if floor > self.floor:
            self._put(self.floor, floor, FINISHED)

    def _give(
        self, entry: RunsEntry, fits: Callable[[Holder | None], bool], holder: Holder
    ) -> None:
        """Give a holder to the messages of an entry whose present one `fits`; None: they were never
        handed out. What is between `next` and them was passed over by that."""
        for start, end in entry.runs:
            start = max(start, self.floor)
            if start > self.next:
                self._put(self.next, start, PASSED_OVER)
            known = [*self._runs.within(start, min(end, self.next))]
            if end > self.next and fits(None):
                self._put(self.next, end, holder)
            for a, b, present in known:
                if fits(present) and present != holder:
                    self._put(a, b, holder)

    def _put(self, start: int, end: int, holder: Holder) -> None:
        for a, b, old in [*self._runs.within(start, end)]:
            if old is not FINISHED:
                self._unfinished -= b - a
            if old is PASSED_OVER:
                self._passed_over -= b - a
            if isinstance(old, Hold):
                extent = self._extents[old.token]
                left = extent.count - (b - a)
                if left:
                    self._extents[old.token] = replace(extent, count=left)
                else:
                    del self._extents[old.token]
        self._runs.put(start, end, holder)
        if holder is not FINISHED:
            self._unfinished += end - start
        if holder is PASSED_OVER:
            self._passed_over += end - start
        if isinstance(holder, Hold):
            extent = self._extents.get(holder.token, _Extent(holder, start, end, 0))
            if not extent.count:
                self._add_time(holder)
            low, high = min(extent.low, start), max(extent.high, end)
            self._extents[holder.token] = _Extent(holder, low, high, extent.count + end - start)

    def _add_time(self, hold: Hold) -> None:
        heappush(self._times, (hold.until_ms, hold.token))
        if len(self._times) > 2 * len(self._extents) + 64:
            held = [extent.hold for extent in self._extents.values()]
            self._times = [(one.until_ms, one.token) for one in (hold, *held)]
            heapify(self._times)

    def _advance(self) -> None:
        for _, end, holder in self._runs:
            if holder is FINISHED:
                self._runs.drop_below(end)
            return


def _fits(holder: Holder | None, token: int) -> bool:
    """Whether a hand-out may decide about a message: it holds it, or no other does."""
    return holder.token == token if isinstance(holder, Hold) else holder is not FINISHED


def _entry_of(hold: Hold, runs: tuple[Bounds, ...]) -> HandedOut:
    return HandedOut(runs, hold.token, hold.attempt, hold.until_ms, hold.client, hold.leased)


def _hold_of(entry: HandedOut) -> Hold:
    return Hold(entry.token, entry.attempt, entry.until_ms, entry.client, entry.leased)
