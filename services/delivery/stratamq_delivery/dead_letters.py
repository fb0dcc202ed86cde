"""Copies that the dead-letter topics of shared groups are owed.

    buried (a record)  ──► owed ──► the copy, which names its source ──► no more

The record finishes the message in its queue, and from then on the copy is owed, whatever is killed.
The copy in the log is the proof, so there is exactly one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from stratamq.errors import OffsetOutOfRangeError, StrataError
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnRecord, copy_of
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import (
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ITEM_SEPARATOR,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    UNIQ_KEY,
    encode_properties,
)
from stratamq.formats.source_item import MessageSource
from stratamq.formats.topics import DEAD_LETTER_PREFIX, retried_topic
from stratamq.store.log_pieces import LogPiece
from stratamq_delivery.entries import Buried
from stratamq_delivery.records import GroupPlace

"""What RocketMQ's 5.x clients show as the dead letter's origin."""
RETRY_MS = 60_000
"""After the log has refused a copy, because an operator took a permission away, for instance."""
MAX_TAKEN = 32


Owed = dict[tuple[int, str], tuple[GroupPlace, Buried]]


class DeadLetters:
    """`owed`: by the source's offset in the log, and group. Changed by the fold alone."""

    def __init__(self, followed: FoldPlace) -> None:
        self.owed: Owed = {}
        self._followed = followed
        self._decided: Owed = {}
        """In no record that the fold has seen."""
        self.buried = 0
        """Decided since the start."""
        self._taken: set[tuple[int, str]] = set()
        self._refused = False
        self._again_ms = 0

    def add(self, place: GroupPlace, entry: Buried) -> None:
        self.owed[entry.source, place.group] = place, entry
        self._decided.pop((entry.source, place.group), None)

    def decide(self, place: GroupPlace, entry: Buried) -> None:
        """`add` will be called once the log has it."""
        self.buried += 1
        self._decided[entry.source, place.group] = place, entry

    def give_up(self) -> None:
        """The log may not have what was decided."""
        self._decided.clear()

    def needed(self) -> int | None:
        """The first message that a copy is to be made of. What a group has not acknowledged holds
        no segment, as what it has not read does not."""
        return min((offset for offset, _ in self.owed), default=None)

    def still_owed(self) -> Iterable[tuple[GroupPlace, Buried]]:
        """With all that was decided and taken."""
        owed = {**self.owed, **self._decided}
        return [one for key, one in owed.items() if key not in self._taken]

    def forget_below(self, minimum: int) -> None:
        """The log has deleted its messages below."""
        for key in [one for one in self.owed if one[0] < minimum]:
            del self.owed[key]
            self._taken.discard(key)

    def apply(self, piece: LogPiece) -> None:
        columns = piece.columns
        for row, source in piece.copies.items():
            if source.generation == self._followed.generation_of(source.offset):
                key = _key(source, columns.topics[columns.topic_index[row]])
                self.owed.pop(key, None)
                self._taken.discard(key)

    def restore(self, owed: Owed) -> None:
        self.owed = {**owed}
        self.begin()

    def begin(self) -> None:
        """What was taken and is still owed is not in the log."""
        self._taken.clear()

    def due_ms(self) -> int | None:
        return self._again_ms if len(self.owed) > len(self._taken) else None

    def take(self, now_ms: int, most: int) -> Sequence[OwnRecord]:
        if self._refused:
            self._refused, self._again_ms = False, now_ms + RETRY_MS
        if now_ms < self._again_ms:
            return []
        taken: list[OwnRecord] = []
        for key, (place, entry) in self.owed.items():
            if len(taken) >= min(most, MAX_TAKEN):
                break
            if key not in self._taken:
                self._taken.add(key)
                if (copy := self._copy(place, entry)) is not None:
                    taken.append(copy)
        return taken

    def refused(self, record: OwnRecord, error: StrataError) -> None:
        """It stays owed."""
        assert record.source is not None
        self._taken.discard(_key(record.source, record.topic))
        self._refused = True

    def _copy(self, place: GroupPlace, entry: Buried) -> OwnRecord | None:
        """None: the log has deleted the message before."""
        segments = self._followed.segments
        assert segments is not None
        try:
            frame = decode(bytes(segments.window(entry.source, entry.size)))
        except OffsetOutOfRangeError:
            return None
        assert isinstance(frame, Frame)
        source = MessageSource(self._followed.generation_of(entry.source), entry.source)
        properties = frame.properties
        origin = {
            DLQ_ORIGIN_TOPIC: retried_topic(place.group, place.topic),
            DLQ_ORIGIN_MESSAGE_ID: properties.get(UNIQ_KEY, frame.message_id),
            RETRY_TOPIC: place.topic,
            ORIGIN_MESSAGE_ID: frame.message_id,
        }
        copy = copy_of(frame, DEAD_LETTER_PREFIX + place.group, source, without=origin)
        return replace(
            copy,
            queue_id=0,
            properties=copy.properties + ITEM_SEPARATOR + encode_properties(origin),
            reconsume_times=entry.attempt,
        )


def _key(source: MessageSource, topic: str) -> tuple[int, str]:
    """Several groups may bury one message: each has a dead-letter topic of its own."""
    return source.offset, topic.removeprefix(DEAD_LETTER_PREFIX)
