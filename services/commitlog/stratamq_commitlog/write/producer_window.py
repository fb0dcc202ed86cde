"""The newest numbered messages of the log: what is sent again is recognised, and not stored again.

A producer that numbers its messages has a number of its own, at random, and sends each message with
a sequence (`formats/producer_item`). The log stores both with the message. A message is sent again
when its answer was lost; the log gives the answer that was lost.

    a batch ──► its sequences are above all that are known ──► appended, `record`ed
            └─► `find`: what is there already is answered with its place; only the rest is appended

What is recognised reaches back to `complete_from`: each numbered message of the log from there on
is here. Nothing of this is on disk but the messages themselves: when a log begins to take messages
(a start, a promotion) the window is `load`ed with the last `commitlog.producer_window_bytes` of the
log, so that it has what the log has, and not what recovery or a cut took away. A slave has none.
After that the oldest leave it only for the bound of its memory.

Exactness at the edge: a producer that resends a message states where the log was when it was first
sent (`KnownPlace`: a generation, and an offset in it). If the message was stored, it is after that
place, or in a later generation. If the place is after `complete_from`, the message is either in the
window or not in the log. If not, it `may_hide` in the log: it is refused, so that it is stored at
most once.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from stratamq_commitlog.log_state import StateCell
from stratamq_commitlog.messages import FrameRun, KnownPlace

MAX_MEMORY_BYTES = 32 << 20
"""What the window keeps in memory, about: 6 GiB of the log in batches of 256 messages of 1 KiB,
64 MiB of it in such messages that are sent singly."""
_STRETCH_BYTES, _RUN_BYTES = 400, 120


@dataclass(slots=True)
class Stretch:
    """Consecutive messages of one producer that lie one behind the other, stored at one time."""

    producer: int
    first: int
    """The first one's sequence."""
    offset: int
    end: int
    """Where they begin and end in the log."""
    lengths: NDArray[np.uint32]
    runs: Sequence[FrameRun]
    first_queue_offsets: Sequence[int]
    """One for each run."""
    store_timestamp_ms: int
    _run_ends: Sequence[int] = field(default=(), init=False, repr=False, compare=False)
    """The rows behind each run's last, once something of it was sent again."""

    @property
    def following(self) -> int:
        """The sequence behind the last one's."""
        return self.first + len(self.lengths)

    @property
    def memory_bytes(self) -> int:
        return _STRETCH_BYTES + _RUN_BYTES * len(self.runs) + 4 * len(self.lengths)

    def run_of(self, row: int) -> tuple[int, int]:
        """The number of the run that a message is in, and the row of its first message."""
        if not self._run_ends:
            self._run_ends = list(accumulate(run.count for run in self.runs))
        number = bisect_right(self._run_ends, row)
        return number, self._run_ends[number - 1] if number else 0


@dataclass(frozen=True, slots=True)
class SequencePiece:
    """Sequences from `first` up to, and without, `following`: those of `stretch`, or None's."""

    first: int
    following: int
    stretch: Stretch | None


class _Known:
    """The known messages of one producer, in the order of their sequences."""

    __slots__ = ("_firsts", "_head", "_stretches", "following")

    def __init__(self) -> None:
        self.following = 0
        """Above every sequence."""
        self._firsts: list[int] = []
        self._stretches: list[Stretch] = []
        self._head = 0
        """What lies before it has left."""

    def add(self, stretch: Stretch) -> None:
        first, following = stretch.first, stretch.first + len(stretch.lengths)
        if first >= self.following:
            self._firsts.append(first)
            self._stretches.append(stretch)
            self.following = following
            return
        at = bisect_right(self._firsts, first, self._head)
        self._firsts.insert(at, first)
        self._stretches.insert(at, stretch)
        self.following = max(self.following, following)

    def remove(self, stretch: Stretch) -> bool:
        """True: nothing is left."""
        at, stretches = self._head, self._stretches
        if stretches[at] is not stretch:
            at = bisect_right(self._firsts, stretch.first, at) - 1
            while stretches[at] is not stretch:  # only if the log has a sequence twice
                at -= 1
            del self._firsts[at], stretches[at]
        else:
            self._head = at + 1
            if 2 * self._head > len(stretches):
                del self._firsts[: self._head], stretches[: self._head]
                self._head = 0
        return len(stretches) == self._head

    def overlapping(self, first: int, end: int) -> Iterator[Stretch]:
        """Those with sequences from `first` up to, and without, `end`."""
        at = max(self._head, bisect_right(self._firsts, first, self._head) - 1)
        while at < len(self._firsts) and self._firsts[at] < end:
            if self._stretches[at].following > first:
                yield self._stretches[at]
            at += 1


class WindowContents:
    """What a window holds. Made anywhere, then loaded."""

    def __init__(
        self, complete_from: int | None = None, *, most_memory_bytes: int = MAX_MEMORY_BYTES
    ) -> None:
        self.complete_from = complete_from
        self.producers: dict[int, _Known] = {}
        self.most_memory_bytes = most_memory_bytes
        self._in_log_order: deque[Stretch] = deque()
        self._memory_bytes = 0

    def __len__(self) -> int:
        return len(self._in_log_order)

    def record(self, stretch: Stretch) -> None:
        """It is in the log, behind all that are here."""
        known = self.producers.get(stretch.producer)
        if known is None:
            known = self.producers[stretch.producer] = _Known()
        known.add(stretch)
        self._in_log_order.append(stretch)
        self._memory_bytes += stretch.memory_bytes
        while self._memory_bytes > self.most_memory_bytes:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = self._in_log_order.popleft()
        self._memory_bytes -= oldest.memory_bytes
        self.complete_from = oldest.end
        if self.producers[oldest.producer].remove(oldest):
            del self.producers[oldest.producer]


class ProducerWindow:
    """The newest numbered messages of one open log. Single-threaded."""

    def __init__(self, states: StateCell) -> None:
        self._states = states
        self._contents = WindowContents()

    @property
    def complete_from(self) -> int | None:
        """Each numbered message of the log from this offset on is here. None: the log takes no
        messages, or has not begun to."""
        return self._contents.complete_from

    def load(self, contents: WindowContents) -> None:
        """The log begins to take messages. Of constant cost."""
        self._contents = contents

    def clear(self) -> None:
        """The log takes no messages."""
        self._contents = WindowContents()

    def record(self, stretch: Stretch) -> None:
        """It is in the log, behind all that are here."""
        self._contents.record(stretch)

    def has_later(self, producer: int, sequence: int) -> bool:
        """Something of the producer from this sequence on is, or was, in the window."""
        known = self._contents.producers.get(producer)
        return known is not None and known.following > sequence

    def find(self, producer: int, first: int, count: int) -> list[SequencePiece]:
        """What of these sequences is here, and what is not, in order."""
        pieces: list[SequencePiece] = []
        at, end = first, first + count
        known = self._contents.producers.get(producer)
        if known is not None:
            for stretch in known.overlapping(first, end):
                start, stop = max(at, stretch.first), min(end, stretch.following)
                if start > at:
                    pieces.append(SequencePiece(at, start, None))
                pieces.append(SequencePiece(start, stop, stretch))
                at = stop
        if at < end:
            pieces.append(SequencePiece(at, end, None))
        return pieces

    def may_hide(self, sent_from: KnownPlace | None) -> bool:
        """Whether a message that is not here may be in the log, stored since `sent_from`; None: it
        was not sent before."""
        if sent_from is None:
            return False
        if self.complete_from is None:
            return True
        earliest = self._earliest(sent_from)
        return earliest is None or earliest < self.complete_from

    def _earliest(self, place: KnownPlace) -> int | None:
        """Where what was stored since then can lie at the earliest; None: it is a place of another
        log's, or of a history that is no longer known."""
        generations = self._states.now.generations
        for number, generation in enumerate(generations):
            if generation.number == place.generation:
                following = generations[number + 1 :]
                return min([place.offset, *(later.start for later in following)])
        return None
