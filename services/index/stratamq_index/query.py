"""One question to the index: which messages of a topic have a key, within a time.

What waits in memory is looked up where the engine runs, when the question arrives (`Source.found`);
everything after that is `steps`, which run in the query lane and read files alone: chains of items,
then the frames they lead to. A frame counts only when its own topic, keys and store time match, so
that neither a hash collision nor a damaged item adds another message, and each frame counts once.

Times in items are whole seconds after the header's begin, so they only rule out what cannot match.
They lie in three ways, which are allowed for: the first item's is counted from the end of the file
before; an earlier message than the file's first gets zero; and where a clock was set back, header
times do not bound what is between. Steps back of up to an hour are found.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stratamq.errors import CorruptRecordError, OffsetOutOfRangeError
from stratamq.files.port import Files
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_layout import (
    BLANK,
    I64,
    MAGIC_V1,
    MAGIC_V2,
    MIN_FRAME_BYTES,
    PHYSICAL_OFFSET_POSITION,
)
from stratamq.formats.frame_verify import NOWHERE, damage_in
from stratamq.formats.index_layout import INDEX_ITEM, INDEX_ITEM_BYTES, IndexHeader, index_key
from stratamq.formats.javahash import index_key_hash
from stratamq.formats.numbers import INT32_MAX
from stratamq.formats.properties import TAGS, has_key
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.store.sealed import sealed_from
from stratamq.store.segment_reader import SegmentReader, UnreadableError
from stratamq_index.geometry import FileGeometry
from stratamq_index.index_file import IndexFileReader, path_of
from stratamq_index.series import Waiting

log = logging.getLogger(__name__)


MAX_MESSAGES = 10_000
DEFAULT_MESSAGES = 32
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""An answer holds one frame at least, and a gRPC message takes twice this."""
CLOCK_STEP_BACK_MS = 3_600_000
TAG_KEY_PREFIX = "T#"
"""5.4.0 and later index TAGS under this. Such items are read, where there are any."""

MAX_DAMAGED = 100

_HOPS_PER_STEP = 512
_FRAMES_PER_STEP = 16
_FIRST_READ_BYTES = 4096
_NEAR_ITEMS = 256
"""Items read at once in a long chain, whose next items often lie close by."""
_SHORT_CHAIN = 8


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """Times inclusive, in ms. `end_ms` None: no end."""

    topic: str
    key: str
    unique_only: bool = False
    max_messages: int = DEFAULT_MESSAGES
    begin_ms: int = 0
    end_ms: int | None = None
    oldest_first: bool = False
    minimums: Mapping[int, int] = field(default_factory=dict)
    """By queue id: below these queue offsets the topic was purged, or deleted."""

    @property
    def key_hash(self) -> int:
        return index_key_hash(index_key(self.topic, self.key))

    def matches(self, frame: Frame) -> bool:
        """By the frame's own fields."""
        if frame.store_timestamp_ms < self.begin_ms or frame.topic != self.topic:
            return False
        if frame.queue_offset < self.minimums.get(frame.queue_id, 0):
            return False
        if self.end_ms is not None and frame.store_timestamp_ms > self.end_ms:
            return False
        properties = frame.properties
        if has_key(properties, self.key, unique_only=self.unique_only):
            return True
        tagged = self.key.startswith(TAG_KEY_PREFIX) and not self.unique_only
        return tagged and properties.get(TAGS) == self.key[len(TAG_KEY_PREFIX) :]


@dataclass(frozen=True, slots=True)
class Source:
    """One index file: what of it was in memory, newest first, and its chain's next item on disk.

    `following` None: by the slot on disk. `header` bounds what may be read.
    """

    name: str
    header: IndexHeader
    found: Sequence[Waiting] = ()
    following: int | None = None

    def outside(self, question: KeyQuery, minimum: int, limit: int) -> bool:
        """Whether no message in it can match."""
        header = self.header
        if header.next_item <= 1 or header.end_phy_offset < minimum:
            return True
        if header.begin_phy_offset >= limit:
            return True
        if header.end_timestamp_ms + CLOCK_STEP_BACK_MS < question.begin_ms:
            return True
        return (
            question.end_ms is not None
            and header.begin_timestamp_ms - CLOCK_STEP_BACK_MS > question.end_ms
        )


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """(physical offset, frame) in the order asked for. `truncated`: there is more."""

    frames: list[tuple[int, bytes]]
    truncated: bool


class QueryLane:
    """Index files and log as the query lane reads them; after the constructor only it does.

    At most `max_open_files` descriptors of index files are kept.
    """

    def __init__(
        self, files: Files, geometry: FileGeometry, segment_bytes: int, max_open_files: int
    ) -> None:
        self._files = files
        self._geometry = geometry
        self.segment_bytes = segment_bytes
        self._max_open_files = max_open_files
        self._open: OrderedDict[str, IndexFileReader] = OrderedDict()
        self._log = SegmentReader(files, COMMIT_LOG, segment_bytes)
        self.sealed_from = NOWHERE
        """From this log offset on every record has a checksum of its own."""
        self.damage: list[str] = []
        """A sentence for each of the first messages that could not be given to a question."""
        self._damaged: set[int] = set()

    def _note_damage(self, offset: int, reason: str) -> None:
        if offset not in self._damaged and len(self._damaged) < MAX_DAMAGED:
            self._damaged.add(offset)
            self.damage.append(
                f"the message at log offset {offset} is damaged ({reason}): answers leave it out"
            )
            log.error("damaged message omitted", extra={"offset": offset, "reason": reason})

    def index_file(self, name: str) -> IndexFileReader | None:
        """None when it is gone."""
        reader = self._open.get(name)
        if reader is None:
            try:
                reader = IndexFileReader.open(self._files, path_of(name), self._geometry)
            except FileNotFoundError:
                return None
            self._open[name] = reader
            if len(self._open) > self._max_open_files:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(name)
        return reader

    def frame(self, offset: int) -> tuple[Frame, bytes] | None:
        """The frame at `offset`, if there is one with that PHYSICALOFFSET, as it was written."""
        try:
            raw = self._log.readable(offset, _FIRST_READ_BYTES)
            if len(raw) < MIN_FRAME_BYTES:
                raw = self._log.read(offset, MIN_FRAME_BYTES)
            if len(raw) < MIN_FRAME_BYTES:
                return None
            size, magic = BLANK.unpack_from(raw)
            (own_offset,) = I64.unpack_from(raw, PHYSICAL_OFFSET_POSITION)
            if magic not in (MAGIC_V1, MAGIC_V2) or own_offset != offset:
                return None
            if not MIN_FRAME_BYTES <= size <= self.segment_bytes:
                return None
            raw = raw[:size] if size <= len(raw) else self._log.read(offset, size)
            reason = (
                damage_in(raw, sealed=offset >= self.sealed_from) if len(raw) == size else "length"
            )
            if reason:
                self._note_damage(offset, reason)
                return None
            frame = decode(raw, verify_body=False)
        except UnreadableError:
            self._note_damage(offset, "unreadable")
            return None
        except (OffsetOutOfRangeError, CorruptRecordError):
            return None
        return (frame, raw) if isinstance(frame, Frame) else None

    def forget(self) -> None:
        """Close all index files: some were replaced, or are gone. What is asked for is reopened."""
        while self._open:
            self._open.popitem()[1].close()

    def look_again(self, minimum: int, cut_to: int) -> None:
        """A stream has begun: the log may have been cut, and its sealed range may have changed."""
        self.sealed_from = sealed_from(self._files)
        self.release(minimum, cut_to)

    def release(self, minimum: int, cut_to: int | None = None) -> None:
        """Let go of log segments that were deleted or cut."""
        self._log.release_below(minimum)
        if cut_to is not None:
            self._log.release_from(cut_to)


class Search:
    """The steps of one question. `answer` is there when they have come to their end."""

    def __init__(
        self, question: KeyQuery, sources: Sequence[Source], minimum: int, limit: int
    ) -> None:
        """`sources` newest first; messages outside [minimum, limit) do not exist."""
        self.question = question
        self._sources = sources
        self._minimum = minimum
        self._limit = limit
        self._seen: set[int] = set()
        self._frames: list[tuple[int, bytes]] = []
        self._bytes = 0
        self._truncated = False

    @property
    def answer(self) -> QueryAnswer:
        reverse = not self.question.oldest_first
        return QueryAnswer(sorted(self._frames, reverse=reverse), self._truncated)

    def steps(self, lane: QueryLane) -> Iterator[None]:
        """Runs in the query lane; a step takes a millisecond or so while nothing is cold."""
        question = self.question
        sources = [s for s in self._sources if not s.outside(question, self._minimum, self._limit)]
        if not question.oldest_first:
            for source in sources:
                for offsets in self._offsets(lane, source):
                    yield from self._collect(lane, offsets)
                    if self._truncated:
                        return
            return
        for source in reversed(sources):
            oldest_first: list[int] = []
            for offsets in self._offsets(lane, source):
                oldest_first += offsets
                yield
            oldest_first.reverse()
            yield from self._collect(lane, oldest_first)
            if self._truncated:
                return

    def _collect(self, lane: QueryLane, offsets: Sequence[int]) -> Iterator[None]:
        for count, offset in enumerate(offsets, 1):
            if count % _FRAMES_PER_STEP == 0:
                yield
            if offset in self._seen or not self._minimum <= offset < self._limit:
                continue
            self._seen.add(offset)
            found = lane.frame(offset)
            if found is None or not self.question.matches(found[0]):
                continue
            raw = found[1]
            if len(self._frames) >= self.question.max_messages or (
                self._frames and self._bytes + len(raw) > MAX_ANSWER_BYTES
            ):
                self._truncated = True
                return
            self._frames.append((offset, raw))
            self._bytes += len(raw)

    def _offsets(self, lane: QueryLane, source: Source) -> Iterator[list[int]]:
        """Candidates of one file, newest first, in parts."""
        header, key_hash = source.header, self.question.key_hash
        for records, numbers in source.found:
            yield [
                int(record["physical_offset"])
                for record, number in zip(records, numbers.tolist(), strict=True)
                if self._possible(header, number, int(record["seconds"]))
            ]
        number = source.following
        if number == 0:
            return
        if number is None:
            reader = lane.index_file(source.name)
            if reader is None:
                return
            number = reader.slot(key_hash % reader.slots)
        bound = header.next_item
        first = end = 0
        raw = b""
        offsets: list[int] = []
        hops = 0
        while 0 < number < bound:  # an older item has a smaller number: no chain is a circle
            if not first <= number < end:
                width = 1 if hops < _SHORT_CHAIN else _NEAR_ITEMS
                first, end = max(1, number + 1 - width), number + 1
                # Asked for each time: since the last step it may have been closed.
                reader = lane.index_file(source.name)
                raw = reader.raw(first, end) if reader is not None else b""
                if len(raw) < INDEX_ITEM_BYTES * (end - first):
                    break
            item_hash, offset, seconds, previous = INDEX_ITEM.unpack_from(
                raw, INDEX_ITEM_BYTES * (number - first)
            )
            if item_hash == key_hash and self._possible(header, number, seconds):
                offsets.append(offset)
            if self._is_too_old(header, number, seconds):
                break
            bound, number = number, previous
            hops += 1
            if hops % _HOPS_PER_STEP == 0:
                yield offsets
                offsets = []
        yield offsets

    def _possible(self, header: IndexHeader, number: int, seconds: int) -> bool:
        """Whether the item's message can lie within the times asked for."""
        begin_ms, end_ms = self.question.begin_ms, self.question.end_ms
        first_ms = header.begin_timestamp_ms
        if first_ms <= 0 or seconds < 0:
            return True
        if number == 1:
            return begin_ms <= first_ms and (end_ms is None or first_ms <= end_ms)
        earliest = first_ms + 1000 * seconds
        if seconds < INT32_MAX and earliest + 999 < begin_ms:
            return False
        return end_ms is None or seconds == 0 or earliest <= end_ms

    def _is_too_old(self, header: IndexHeader, number: int, seconds: int) -> bool:
        """Whether nothing older can match, unless a clock was set back further than allowed for."""
        if number == 1 or header.begin_timestamp_ms <= 0 or not 0 <= seconds < INT32_MAX:
            return False
        latest = header.begin_timestamp_ms + 1000 * seconds + 999
        return latest + CLOCK_STEP_BACK_MS < self.question.begin_ms
