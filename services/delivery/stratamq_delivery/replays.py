"""Dead letters that operators replay, and those that were replayed before.

    dead letter of group G, from topic T ──► asked ──► its copy in %RETRY%G_T ──► workers of G

The workers of G that receive from T also get the messages of that topic (`sharing.py`); other
groups of T do not. RocketMQ's POP uses the same topic for messages that it hands out again. The
copy names the dead letter as its source, and is the proof, so that each is replayed once, whatever
is killed. The dead letter stays where it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from stratamq.errors import NotFoundError, OffsetOutOfRangeError, StrataError
from stratamq.files.metadata import JsonObject
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnRecord, copy_of
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import REPLAYED_FROM
from stratamq.formats.source_item import MessageSource
from stratamq.formats.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, retry_topic
from stratamq.store.log_pieces import LogPiece
from stratamq_delivery.asked import AskedFor, Done

MAX_TAKEN = 32


class ReplayCopy(NamedTuple):
    """A copy that the log has. `offset`: its queue offset."""

    place: int
    topic: str
    offset: int


class ReplayWish(NamedTuple):
    """A dead letter that is to be handed out again, to which group and as a message of what."""

    source: MessageSource
    size: int
    group: str
    topic: str


class Replays:
    """Implements `Machine`. Dead letters are named by their offsets in the log."""

    name, version = "replays", "1"

    def __init__(
        self, followed: FoldPlace, arrived: Callable[[str], None] = lambda _: None
    ) -> None:
        """`arrived` is called with a retry topic that has new messages."""
        self.asked = AskedFor[ReplayWish](followed)
        self.replayed = 0
        """Copies that the log has answered, since the start."""
        self._arrived = arrived
        self._followed = followed
        self._taken: set[int] = set()
        self.restore({})

    def times(self, letter: int) -> int:
        """How often it was replayed."""
        return len(self._replays.get(letter, ()))

    def end_of(self, group: str, topic: str) -> int:
        """Where queue 0 of the group's retry topic ends, at least; 0: nothing was replayed."""
        return self._ends.get(retry_topic(group, topic), 0)

    def ask(self, wish: ReplayWish, done: Done) -> None:
        """`done` is called when the log has flushed the copy, as an acknowledgement is answered."""
        self.asked.ask(wish.source.offset, wish, done)

    def moved(self, is_active: bool) -> None:
        """The log has come further; `is_active`: what is asked is appended."""
        if not is_active:
            self.asked.give_up()
        self.asked.answer()

    # --- the state ---

    def restore(self, document: JsonObject) -> None:
        self.asked.give_up()
        known = document.get("replays")
        self._replays: dict[int, tuple[ReplayCopy, ...]] = {
            int(letter): tuple(ReplayCopy(*one) for one in some)
            for letter, some in (known.items() if isinstance(known, dict) else ())
        }
        self._find_ends()

    def snapshot(self) -> JsonObject:
        return {"replays": {str(letter): some for letter, some in self._replays.items()}}

    def apply(self, piece: LogPiece) -> None:
        columns = piece.columns
        for row, source in piece.copies.items():
            topic = columns.topics[columns.topic_index[row]]
            is_ours = source.generation == self._followed.generation_of(source.offset)
            if not topic.startswith(RETRY_PREFIX) or not columns.in_queue[row] or not is_ours:
                continue
            frame = decode(piece.frame(row))
            assert isinstance(frame, Frame)
            if REPLAYED_FROM not in frame.properties:
                continue  # example: a classic consumer sent it back, and its delay is over
            place, letter = int(columns.physical_offset[row]), source.offset
            replay = ReplayCopy(place, topic, int(columns.queue_offset[row]))
            self._replays[letter] = (*self._replays.get(letter, ()), replay)
            self._ends[topic] = replay.offset + 1
            self._taken.discard(letter)
            self.asked.end(letter, place, lambda _: None)
            self._arrived(topic)

    def cut(self, offset: int) -> int:
        self.asked.give_up()
        self._keep(lambda one: one.place < offset)
        return offset

    def needed(self) -> int | None:
        """A dead letter holds no segment: no group waits for it."""
        return None

    def forget_below(self, minimum: int) -> None:
        self._keep(lambda one: one.place >= minimum)

    def _keep(self, is_kept: Callable[[ReplayCopy], bool]) -> None:
        kept = {letter: tuple(filter(is_kept, some)) for letter, some in self._replays.items()}
        self._replays = {letter: some for letter, some in kept.items() if some}
        self._find_ends()

    def _find_ends(self) -> None:
        self._ends: dict[str, int] = {}
        for one in (one for some in self._replays.values() for one in some):
            self._ends[one.topic] = max(self._ends.get(one.topic, 0), one.offset + 1)

    # --- what is appended ---

    def begin(self) -> None:
        self._taken.clear()

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        waiting = self._waiting()[: min(most, MAX_TAKEN)]
        self._taken.update(waiting)
        copies = [self._copy(letter) for letter in waiting]
        return [copy for copy in copies if copy is not None]

    def due_ms(self) -> int | None:
        return 0 if self._waiting() else None

    def acknowledged(self, records: Sequence[OwnRecord], *, is_flushed: bool) -> None:
        self.replayed += len(records)

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        assert record.source is not None
        self._taken.discard(record.source.offset)
        self.asked.refuse(record.source.offset, error)

    def _waiting(self) -> list[int]:
        return [letter for letter in self.asked.offsets if letter not in self._taken]

    def _copy(self, letter: int) -> OwnRecord | None:
        """None: the log has deleted the dead letter meanwhile."""
        segments, wish = self._followed.segments, self.asked.wanted(letter)
        assert segments is not None and wish is not None
        try:
            frame = decode(bytes(segments.window(letter, wish.size)))
        except OffsetOutOfRangeError:
            self.asked.refuse(letter, NotFoundError("the log has deleted the dead letter"))
            return None
        assert isinstance(frame, Frame)
        more = {REPLAYED_FROM: DEAD_LETTER_PREFIX + wish.group}
        copy = copy_of(frame, retry_topic(wish.group, wish.topic), wish.source, more=more)
        return replace(copy, queue_id=0, reconsume_times=0)
