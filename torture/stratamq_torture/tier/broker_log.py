"""A broker's log as files that the tier service reads, and what is in it."""

import random
from bisect import bisect_left
from dataclasses import dataclass

from stratamq.files.metadata import MetadataFile
from stratamq.files.simulated import SimulatedDisk
from stratamq.follow.protocol import Opened
from stratamq.formats import frame as frames
from stratamq.formats.file_names import offset_name
from stratamq.formats.generation_number import RANDOM_BITS, make_number, starts_of, term_of
from stratamq.formats.properties import encode_properties
from stratamq.formats.property_crc import fill_property_crc, reserve
from stratamq.formats.store_paths import COMMIT_LOG, GENERATIONS_PATH
from stratamq.formats.tier_progress import TierProgress
from stratamq.store.generations import generations_document
from stratamq.tier.writing.intake import QueueKey

SEGMENT_BYTES = 16 << 10
BLANK_BYTES = 8


@dataclass(frozen=True, slots=True)
class Stored:
    """One message. `place`: log offset; `number`: in the whole trial."""

    key: QueueKey
    queue_offset: int
    place: int
    time_ms: int
    record: bytes
    number: int
    sealed: bool

    @property
    def unique_key(self) -> str:
        return f"u{self.number}"


class BrokerLog:
    """`gone`: messages that were deleted although the tier did not have them."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.files = SimulatedDisk(0).files()
        self.generations: list[tuple[int, int]] = []
        self.messages: list[Stored] = []
        self.next: dict[QueueKey, int] = {}
        self.minimum = self.end = self.flushed = self.confirmed = 0
        self.inherited_minimum = 0
        """The highest minimum of the logs that were masters before: what the tier lacked below it
        was recorded as lost, and the gap stays, also where this log begins further back."""
        self.gone: set[tuple[QueueKey, int]] = set()
        self.floors: dict[QueueKey, int] = {}
        """By queue: messages below were purged."""
        self._chance = chance

    @property
    def generation(self) -> int:
        return self.generations[-1][0]

    @property
    def first_local(self) -> int:
        """The number of messages that are not in the log's files any more."""
        return bisect_left(self.messages, self.minimum, key=lambda message: message.place)

    def begin(self, term: int) -> None:
        """A master's start, in a new term or in the one before."""
        last = self.generations[-1][0] if self.generations else 0
        starts = starts_of(last) + 1 if term_of(last) == term else 1
        number = make_number(term, starts, self._chance.getrandbits(RANDOM_BITS))
        self.generations.append((number, self.end))
        document = generations_document(self.generations, SEGMENT_BYTES)
        MetadataFile(self.files, GENERATIONS_PATH).store(document)

    def append(self, key: QueueKey, body: bytes, number: int, now_ms: int) -> None:
        sealed = self._chance.random() < 0.7
        raw = bytearray(self._record(key, body, number, now_ms, self.end, sealed))
        room = SEGMENT_BYTES - self.end % SEGMENT_BYTES
        if len(raw) + BLANK_BYTES > room:
            self._write(self.end, frames.encode_blank(room))
            self.end += room
            raw = bytearray(self._record(key, body, number, now_ms, self.end, sealed))
        if sealed:
            fill_property_crc(raw)
        message = Stored(key, self.next.get(key, 0), self.end, now_ms, bytes(raw), number, sealed)
        self._write(self.end, message.record)
        self.messages.append(message)
        self.next[key] = message.queue_offset + 1
        self.end += len(raw)

    def purge(self) -> None:
        """Messages of a queue up to any of those that are flushed, or all: its topic is deleted."""
        key = self._chance.choice(sorted(self.next))
        flushed = [one for one in self.messages if one.key == key and one.place < self.flushed]
        if flushed:
            last = self._chance.choice((flushed[-1], self._chance.choice(flushed)))
            self.floors[key] = max(self.floors.get(key, 0), last.queue_offset + 1)

    def is_purged(self, key: QueueKey, queue_offset: int) -> bool:
        return queue_offset < self.floors.get(key, 0)

    def cut(self, end: int) -> None:
        """Lose everything from log offset `end` on: a place where a message ends."""
        lost = [message for message in self.messages if message.place >= end]
        del self.messages[len(self.messages) - len(lost) :]
        for message in reversed(lost):
            self.next[message.key] = message.queue_offset
        base = end - end % SEGMENT_BYTES
        for start in range(base, self.end, SEGMENT_BYTES):
            path = f"{COMMIT_LOG}/{offset_name(start)}"
            if self.files.entry(path) is not None and start > base:
                self.files.unlink(path)
        if end % SEGMENT_BYTES and self.files.entry(f"{COMMIT_LOG}/{offset_name(base)}"):
            self._write(end, bytes(SEGMENT_BYTES - end % SEGMENT_BYTES))
        elif self.files.entry(f"{COMMIT_LOG}/{offset_name(base)}") is not None:
            self.files.unlink(f"{COMMIT_LOG}/{offset_name(base)}")
        self.end = end
        self.flushed, self.confirmed = min(self.flushed, end), min(self.confirmed, end)

    def delete_below(self, minimum: int) -> None:
        """Whole segments."""
        for start in range(self.minimum, minimum, SEGMENT_BYTES):
            self.files.unlink(f"{COMMIT_LOG}/{offset_name(start)}")
        self.minimum = minimum

    def copy(self, name: str, minimum: int, end: int, term: int) -> "BrokerLog":
        """A slave's log, up to `end`, that is promoted."""
        other = BrokerLog(name, self._chance)
        other.messages = [message for message in self.messages if message.place < end]
        other.generations = [one for one in self.generations if one[1] <= end]
        other.minimum, other.end = minimum, end
        other.inherited_minimum = max(self.minimum, self.inherited_minimum)
        for message in other.messages:
            other.next[message.key] = message.queue_offset + 1
        kept = {(message.key, message.queue_offset) for message in other.messages}
        other.gone = self.gone & kept
        for key, floor in self.floors.items():
            other.floors[key] = min(floor, other.next.get(key, 0))
        reached = minimum
        for message in other.messages[other.first_local :]:
            if message.place > reached:
                other._write(reached, frames.encode_blank(message.place - reached))
            other._write(message.place, message.record)
            reached = message.place + len(message.record)
        if reached < end:
            other._write(reached, frames.encode_blank(end - reached))
        other.flushed = other.confirmed = end
        other.begin(term)
        return other

    def shared_end(self, progress: TierProgress) -> int:
        """Up to which log offset this log has what a tier of that progress was written from."""
        starts = dict(self.generations)
        following = [*(start for _, start in self.generations[1:]), self.end]
        ends = dict(zip(starts, following, strict=True))
        theirs_end = self.end
        for number, start in reversed(progress.history or ((progress.generation, 0),)):
            if number in ends:
                return min(theirs_end, ends[number])
            theirs_end = start
        return 0

    def opened(self) -> Opened:
        """Return the log's state as a follower sees it."""
        number, start = self.generations[-1]
        return Opened(
            number, start, start, self.minimum, self.confirmed, self.flushed, SEGMENT_BYTES
        )

    def ends(self) -> list[int]:
        """Log offsets at which a message ends, of those that are here."""
        return [one.place + len(one.record) for one in self.messages[self.first_local :]]

    def _write(self, place: int, data: bytes) -> None:
        start = place - place % SEGMENT_BYTES
        path = f"{COMMIT_LOG}/{offset_name(start)}"
        if self.files.entry(path) is None:
            self.files.create(path, SEGMENT_BYTES, sparse=True)
        file = self.files.open(path, writable=True)
        file.write(place - start, data)
        file.close()

    def _record(
        self, key: QueueKey, body: bytes, number: int, now_ms: int, place: int, sealed: bool
    ) -> bytes:
        properties = encode_properties({"KEYS": f"k{number}", "UNIQ_KEY": f"u{number}"})
        return frames.encode(
            topic=key[0].encode(),
            body=body,
            born_host=bytes(8),
            store_host=bytes(8),
            properties=reserve(properties) if sealed else properties,
            queue_id=key[1],
            queue_offset=self.next.get(key, 0),
            physical_offset=place,
            store_timestamp_ms=now_ms,
        )
