"""The messages of a key in a tier of ours, by the broker's key index.

A file has the hashes of some commits, in the order of the commits; times of two files may overlap.
So files are looked at by their times, a few at once, until no other can have a message that belongs
into the answer. The message itself decides: an index may name one that was cut off or replaced.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stratamq.errors import CorruptRecordError
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import has_key
from stratamq.formats.tier_index import (
    SLOT_BYTES,
    decode_items,
    hashes_of_key,
    items_of_slot,
    slot_place,
    times_of,
)
from stratamq.formats.tier_index_manifest import (
    IndexedFile,
    IndexManifest,
    decode_index_manifest,
)
from stratamq.formats.tier_names import INDEX_TOPIC
from stratamq.tier.containers.key_index import Keys, joined
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import AbsentError, Block, Load, Procedure, Read, Together, ask
from stratamq.tier.reading.keys import ALL_TIMES

SLACK_MS = 8_000
"""An item's second may be as much before its message: a file that was merged from others has lost
up to a second with each merge."""
FILES_AT_ONCE = 8
MESSAGES_AT_ONCE = 32
MAX_BYTES = 2 << 20
"""The limit of an answer, unless its only message is larger."""

OpenQueue = Callable[[int], Procedure[TierQueue | None]]
"""The queue of this id of the topic that is asked for; None: the tier does not have it."""


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """`pending`: what a writer in this process has not uploaded yet."""

    manifest: IndexManifest
    pending: tuple[Keys, ...] = ()

    def between(self, span: tuple[int, int]) -> list[IndexedFile]:
        """Files that may have a message stored in `span`, first and last ms."""
        return [
            file
            for file in self.manifest.files
            if file.first_ms <= span[1] and file.last_ms >= span[0]
        ]


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """`span`: first and last store time in ms. `limit`: 1 or more messages, the newest of them
    unless `oldest_first`. `unique_only`: by their unique key alone. `minimums`: by queue id,
    messages below these queue offsets are hidden."""

    topic: str
    key: str
    limit: int
    span: tuple[int, int] = ALL_TIMES
    oldest_first: bool = False
    unique_only: bool = False
    minimums: Mapping[int, int] = field(default_factory=dict)

    def accepts(self, frame: Frame) -> bool:
        """By the message's own fields."""
        return (
            frame.topic == self.topic
            and self.span[0] <= frame.store_timestamp_ms <= self.span[1]
            and frame.queue_offset >= self.minimums.get(frame.queue_id, 0)
            and has_key(frame.properties, self.key, unique_only=self.unique_only)
        )


@dataclass(frozen=True, slots=True)
class KeyIndexHit:
    """`record`: as it is in the tier."""

    frame: Frame
    record: bytes

    @property
    def order(self) -> tuple[int, int, int]:
        """By store time; equal ones by queue and queue offset."""
        return self.frame.store_timestamp_ms, self.frame.queue_id, self.frame.queue_offset


@dataclass(frozen=True, slots=True)
class KeyIndexAnswer:
    """In the order that was asked for. `truncated`: there is more. `damaged`: queue id and place
    of records that an item names and that are damaged."""

    hits: tuple[KeyIndexHit, ...]
    truncated: bool = False
    damaged: tuple[tuple[int, int], ...] = ()


def index_place(cluster: str, broker: str) -> QueuePlace:
    return QueuePlace(cluster, broker, INDEX_TOPIC, 0)


def load_index(cluster: str, broker: str) -> Procedure[IndexManifest | None]:
    """None: nothing was indexed. CorruptRecordError."""
    try:
        raw, _ = yield from ask(Load(index_place(cluster, broker).manifest))
    except AbsentError:
        return None
    return decode_index_manifest(raw)


def query(
    index: KeyIndex, open_queue: OpenQueue, question: KeyQuestion
) -> Procedure[KeyIndexAnswer]:
    """The messages of a key, each once.

    Two rounds of calls for `FILES_AT_ONCE` files, one for `MESSAGES_AT_ONCE` messages. AbsentError
    where retention has deleted a file meanwhile: the manifest is to be loaded again.
    """
    topic_id = index.manifest.topics.get(question.topic)
    if topic_id is None:
        return KeyIndexAnswer(())
    found = _Found(question)
    for files, pending in _rounds(index, question):
        if found.is_settled(files):
            break
        keys = [*pending, *(yield from _keys_in(files, question))]
        chosen = joined([_chosen(one, topic_id, question) for one in keys])
        yield from _read(_in_order(chosen, question), open_queue, found)
    return found.answer()


def _rounds(
    index: KeyIndex, question: KeyQuestion
) -> Iterator[tuple[Sequence[IndexedFile], tuple[Keys, ...]]]:
    """Files whose times come first, a few at once. What is in memory is of any time."""
    files = index.between(question.span)
    if question.oldest_first:
        files.sort(key=lambda file: file.first_ms)
    else:
        files.sort(key=lambda file: file.last_ms, reverse=True)
    if index.pending:
        yield (), index.pending
    for low in range(0, len(files), FILES_AT_ONCE):
        yield files[low:], ()


def _keys_in(files: Sequence[IndexedFile], question: KeyQuestion) -> Procedure[list[Keys]]:
    """Read the key's slots in the first `FILES_AT_ONCE` of the files. CorruptRecordError."""
    files = files[:FILES_AT_ONCE]
    if not files:
        return []
    hashes = hashes_of_key(question.topic, question.key)
    slots = [
        (file, slot) for file in files for slot in sorted({code % file.slots for code in hashes})
    ]
    entries = yield from ask(
        Together([Read(file.name, slot_place(slot), SLOT_BYTES) for file, slot in slots])
    )
    chosen, calls = [], []
    for (file, slot), entry in zip(slots, entries, strict=True):
        start, size = items_of_slot(entry, slot, file.slots, file.size, file.name)
        if size:
            chosen.append(file)
            calls.append(Read(file.name, start, size))
    if not calls:
        return []
    return [
        _with_times(file, raw)
        for file, raw in zip(chosen, (yield from ask(Together(calls))), strict=True)
    ]


def _with_times(file: IndexedFile, raw: Block) -> Keys:
    items = decode_items(raw)
    return Keys(items, times_of(items, file.begin_ms))


def _chosen(keys: Keys, topic_id: int, question: KeyQuestion) -> Keys:
    """Those that may be asked for."""
    items, times = keys.items, keys.times
    kept = np.isin(items["key_hash"], hashes_of_key(question.topic, question.key))
    kept &= items["topic_id"] == topic_id
    kept &= times > question.span[0] - SLACK_MS
    kept &= times < question.span[1] + SLACK_MS
    return Keys(items[kept], times[kept])


def _in_order(keys: Keys, question: KeyQuestion) -> Keys:
    """By their times, which are not exact."""
    order = np.argsort(keys.times, kind="stable")
    if not question.oldest_first:
        order = order[::-1]
    return Keys(keys.items[order], keys.times[order])


class _Found:
    """What belongs into the answer so far, and one message more."""

    def __init__(self, question: KeyQuestion) -> None:
        self.question = question
        self.damaged: set[tuple[int, int]] = set()
        self._seen: set[tuple[int, int]] = set()
        self._hits: list[KeyIndexHit] = []

    def is_new(self, queue_id: int, place: int) -> bool:
        if (queue_id, place) in self._seen:
            return False
        self._seen.add((queue_id, place))
        return True

    def add(self, queue_id: int, place: int, minimum: int, record: bytes) -> None:
        """Unless it is below the queue's `minimum`: it was purged, within a segment that stays."""
        try:
            # Not by a checksum of the whole record: RocketMQ moves records and leaves it.
            frame = decode(record)
        except CorruptRecordError:
            self.damaged.add((queue_id, place))
            return
        if not isinstance(frame, Frame) or frame.queue_offset < minimum:
            return
        if self.question.accepts(frame):
            self._hits.append(KeyIndexHit(frame, record))

    def trim(self) -> None:
        self._hits.sort(key=lambda hit: hit.order, reverse=not self.question.oldest_first)
        del self._hits[self.question.limit + 1 :]

    def is_settled(self, files: Sequence[IndexedFile]) -> bool:
        """Whether none of the files, in their order, can change the answer."""
        if not files:
            return False
        if self.question.oldest_first:
            return self.is_before(files[0].first_ms)
        return self.is_before(files[0].last_ms)

    def is_before(self, time_ms: int) -> bool:
        """Whether there are as many as are wanted, all of them in front of this time."""
        if len(self._hits) <= self.question.limit:
            return False
        last = self._hits[-1].frame.store_timestamp_ms
        return last < time_ms if self.question.oldest_first else last > time_ms

    def answer(self) -> KeyIndexAnswer:
        kept, size = [], 0
        for hit in self._hits[: self.question.limit]:
            size += len(hit.record)
            if kept and size > MAX_BYTES:
                break
            kept.append(hit)
        return KeyIndexAnswer(tuple(kept), len(self._hits) > len(kept), tuple(sorted(self.damaged)))


def _read(keys: Keys, open_queue: OpenQueue, found: _Found) -> Procedure[None]:
    """The messages that the items name, until no further one can change the answer."""
    slack_ms = SLACK_MS if found.question.oldest_first else -SLACK_MS
    opened: dict[int, TierQueue | None] = {}
    for low in range(0, len(keys), MESSAGES_AT_ONCE):
        part, times = keys.items[low : low + MESSAGES_AT_ONCE], keys.times[low:]
        if found.is_before(int(times[0]) - slack_ms):
            return
        calls: list[Read] = []
        wanted: list[tuple[int, int, int, int]] = []
        for item in part:
            queue_id, place, size = (int(item[name]) for name in ("queue_id", "offset", "size"))
            if queue_id not in opened:
                opened[queue_id] = yield from open_queue(queue_id)
            queue = opened[queue_id]
            # What retention has deleted is not covered any more.
            if queue is None or not queue.records.covers(place, size):
                continue
            if found.is_new(queue_id, place):
                reads = queue.records.calls(place, size)
                wanted.append((queue_id, place, queue.minimum, len(reads)))
                calls += reads
        if calls:
            pieces = iter((yield from ask(Together(calls))))
            for queue_id, place, minimum, count in wanted:
                record = b"".join(next(pieces) for _ in range(count))
                found.add(queue_id, place, minimum, record)
        found.trim()
