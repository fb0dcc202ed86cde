"""A broker's key index: keys gather in memory, and go into a file of their own now and then.

What a crash takes from memory is in the queues: `catch_up` reads the records from the queue offset
on up to which the manifest's files have everything, all of them when the index is lost. A message
may be in two files; a query returns it once.

    keys of committed messages ──add──▶ memory ──flush──▶ file, then the manifest that names it

A file is written once, under a name of its own. Where the storage has positions it is RocketMQ's
uploaded index file, with RocketMQ's number of slots.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from stratamq.errors import CorruptionError, CorruptRecordError
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.queue_units import decode_units
from stratamq.formats.tier_index_manifest import (
    IndexedFile,
    IndexManifest,
    QueueKey,
    decode_index_manifest,
    encode_index_manifest,
)
from stratamq.formats.tier_manifest import Dropped, Epoch, Manifest
from stratamq.formats.tier_names import SegmentType, index_path, segment_path
from stratamq.tier.containers.key_index import (
    I64,
    Keys,
    fitting_slots,
    index_file,
    joined,
    keys_of,
)
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import (
    AbsentError,
    Block,
    Create,
    Delete,
    Listed,
    Load,
    Procedure,
    Size,
    Swap,
    SwapLostError,
    Unchanged,
    Version,
    WriteAt,
    ask,
)
from stratamq.tier.reading.key_index import KeyIndex, index_place
from stratamq.tier.reading.manifests import open_queue
from stratamq.tier.writing.batch import TierBatch
from stratamq.tier.writing.claim import FencedError, PutBackError
from stratamq.tier.writing.index_merging import MAX_ITEMS, keys_in, run_to_merge
from stratamq.tier.writing.orphans import listed

_ATTEMPTS = 8
_WRITTEN_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Seen:
    manifest: IndexManifest
    version: Version | None


class IndexWriter:
    """`epoch`: from `claim`; `slots`: of a file, 0: by its items. One procedure at a time, after
    `open`."""

    def __init__(
        self,
        cluster: str,
        broker: str,
        epoch: Epoch,
        positions: bool,
        slots: int = 0,
        most_items: int = MAX_ITEMS,
        topic_ids: Mapping[str, int] | None = None,
    ) -> None:
        """`topic_ids`: of RocketMQ's metadata, for topics that the index has not met."""
        self._names = cluster, broker
        self._path = index_place(cluster, broker).manifest
        self._epoch = epoch
        self._positions = positions
        self._slots = slots
        self._most_items = most_items
        self._seen: _Seen | None = None
        self._revision = 0
        """The highest that was seen."""
        self._shown = IndexManifest(cluster, broker, 0, epoch)
        self._given = dict(topic_ids or {})
        self._topics: dict[str, int] = {}
        self._next_topic_id = 0
        self._ends: dict[QueueKey, int] = {}
        """Keys of messages below are in a file or in memory."""
        self._keys: list[Keys] = []
        """Each has fewer than half as many as the one before: their number grows
        logarithmically."""
        self._leaving = joined([])
        """On their way into a file."""
        self._attempt = 0

    @property
    def items(self) -> int:
        """In memory."""
        return sum(map(len, self._keys)) + len(self._leaving)

    def open(self) -> Procedure[IndexManifest]:
        """Fence earlier writers out of the index. An index that cannot be read starts empty:
        `catch_up` rebuilds it. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = yield from self._look(restart=True)
            self._ends = dict(seen.manifest.covered)
            self._topics = self._given | seen.manifest.topics
            self._next_topic_id = max(self._topics.values(), default=-1) + 1
            if (yield from self._swap(seen, seen.manifest)):
                return seen.manifest
        raise FencedError.of_conflicts(self._path)

    @property
    def manifest(self) -> IndexManifest:
        """Return the manifest of the last change, with all topic ids."""
        return replace(self._shown, topics=dict(self._topics))

    @property
    def files(self) -> tuple[IndexedFile, ...]:
        """Return the files of the last change."""
        return self._shown.files

    def reader(self) -> KeyIndex:
        """With what is in memory, as of now. Of any thread: what is on its way into a file is
        in both for a moment, and never in none."""
        pending = tuple(keys for keys in (*self._keys, self._leaving) if len(keys))
        return KeyIndex(replace(self._shown, topics=self._topics), pending)

    def lacks(self, manifest: Manifest) -> bool:
        """Whether a queue has messages whose keys are not here."""
        key = manifest.key
        return self._ends.get(key, manifest.minimum) < manifest.end_offset

    def add(self, batch: TierBatch, manifest: Manifest) -> bool:
        """Messages that a commit has just added, the last of the manifest. False: some before them
        are not indexed, or they are not its last; `catch_up` is needed."""
        key = manifest.key
        end = self._ends.get(key, manifest.minimum)
        if batch.end != manifest.end_offset or batch.first > end:
            return end >= manifest.end_offset
        rest = batch.behind(end)
        if len(rest.sizes):
            self._take(key, rest.records, rest.sizes, manifest.end - len(rest.records))
            self._ends[key] = rest.end
        return True

    def catch_up(self, place: QueuePlace, most_bytes: int | None = None) -> Procedure[int]:
        """Index what the tier has of a queue and the index has not, a part at a time, up to about
        `most_bytes`: how many messages. CorruptionError where it cannot be read."""
        found = yield from open_queue(place)
        if found is None:
            return 0
        key, count, size = (place.topic, place.queue_id), 0, 0
        for segment, parts in found.parts:
            for part in parts:
                end = self._ends.get(key, 0)
                if part.first + part.count <= end:
                    continue
                if most_bytes is not None and size >= most_bytes:
                    return count
                size += part.size
                start = segment.base + part.position
                records = yield from found.queue.records.read(start, part.size)
                units = decode_units(
                    (
                        yield from found.queue.units.read(
                            part.first * QUEUE_UNIT_BYTES, part.count * QUEUE_UNIT_BYTES
                        )
                    )
                )
                sizes = units["size"].astype(np.int64)
                if int(sizes.sum()) != part.size:
                    raise CorruptionError(f"{place.path}: units and records do not fit each other")
                skipped = max(0, end - part.first)
                before = int(sizes[:skipped].sum())
                self._take(key, records[before:], sizes[skipped:], start + before)
                count += part.count - skipped
                self._ends[key] = part.first + part.count
                if self.items >= self._most_items:
                    yield from self.flush()
        return count

    def flush(self) -> Procedure[bool]:
        """What is in memory becomes a file. Whether there was anything. FencedError; after any
        other error it is still in memory."""
        ends, keys = dict(self._ends), joined(self._keys)
        self._leaving = keys
        self._keys = []
        try:
            return (yield from self._flush(keys, ends))
        finally:
            if len(self._leaving):
                self._keys = [self._leaving, *self._keys]
            self._leaving = joined([])

    def _flush(self, keys: Keys, ends: dict[QueueKey, int]) -> Procedure[bool]:
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            covered = dict(seen.manifest.covered)
            for key, end in ends.items():
                covered[key] = max(end, covered.get(key, 0))
            if not len(keys) and covered == seen.manifest.covered:
                return False
            following = replace(seen.manifest, covered=covered)
            if len(keys):
                file = yield from self._upload(keys, seen.manifest, seen.version)
                if file is None:
                    continue
                following = replace(
                    following, files=(*following.files, file), end=file.base + file.size
                )
            if (yield from self._swap(seen, following)):
                self._leaving = joined([])
                return True
        raise FencedError.of_conflicts(self._path)

    def merge(self, now_ms: int) -> Procedure[int]:
        """Make one file of the last ones where they are small: of how many. Not where the storage
        has positions: RocketMQ's files are not small. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            files = seen.manifest.files
            count = 0 if self._positions else run_to_merge(files, self._most_items)
            if not count:
                return 0
            kept, run = files[:-count], files[-count:]
            keys = yield from keys_in(run)
            file = yield from self._upload(keys, replace(seen.manifest, files=kept), seen.version)
            if file is None:
                continue
            file = replace(
                file,
                first_ms=min(one.first_ms for one in run),
                last_ms=max(one.last_ms for one in run),
            )
            following = replace(
                seen.manifest,
                files=(*kept, file),
                end=file.base + file.size,
                dropped=(*seen.manifest.dropped, *(Dropped(one.name, now_ms) for one in run)),
            )
            if (yield from self._swap(seen, following)):
                return count
        raise FencedError.of_conflicts(self._path)

    def limit(self, ends: Mapping[QueueKey, int]) -> Procedure[None]:
        """Before queues are cut: what comes at these queue offsets and above is not indexed yet.
        FencedError."""
        for key, end in ends.items():
            if end < self._ends.get(key, 0):
                self._ends[key] = end
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            covered = {
                key: min(end, ends.get(key, end)) for key, end in seen.manifest.covered.items()
            }
            if covered == seen.manifest.covered:
                return
            if (yield from self._swap(seen, replace(seen.manifest, covered=covered))):
                return
        raise FencedError.of_conflicts(self._path)

    def expire(self, older_than_ms: int, now_ms: int) -> Procedure[int]:
        """Take out the files whose last message was stored before that time: how many. `collect`
        deletes them. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            gone = [file for file in seen.manifest.files if file.last_ms < older_than_ms]
            if not gone:
                return 0
            following = replace(
                seen.manifest,
                files=tuple(file for file in seen.manifest.files if file not in gone),
                dropped=(
                    *seen.manifest.dropped,
                    *(Dropped(file.name, now_ms) for file in gone),
                ),
            )
            if (yield from self._swap(seen, following)):
                return len(gone)
        raise FencedError.of_conflicts(self._path)

    def collect(self, before_ms: int) -> Procedure[int]:
        """Delete the files that were taken out before that time: how many. FencedError."""
        for _ in range(_ATTEMPTS):
            seen = self._seen or (yield from self._look())
            due = [one for one in seen.manifest.dropped if one.since_ms < before_ms]
            if not due:
                return 0
            for one in due:
                yield from ask(Delete(one.path))
            left = tuple(one for one in seen.manifest.dropped if one not in due)
            if (yield from self._swap(seen, replace(seen.manifest, dropped=left))):
                return len(due)
        raise FencedError.of_conflicts(self._path)

    def sweep(self, before_ms: int) -> Procedure[list[Listed]]:
        """Delete files that nothing names and that were last written before that time: what it was.
        In a directory none, until the index has a file: they may be RocketMQ's. FencedError."""
        objects = yield from listed(index_place(*self._names))
        seen = yield from self._look()
        manifest = seen.manifest
        named = {self._path, *(file.name for file in manifest.files)}
        named.update(one.path for one in manifest.dropped)
        if self._positions and not manifest.files:
            return []
        found = [one for one in objects if one.path not in named and one.modified_ms < before_ms]
        unchanged = Unchanged(self._path, seen.version) if self._positions else None
        for one in found:
            try:
                yield from ask(Delete(one.path, unchanged))
            except SwapLostError:
                self._seen = None
                return []
        return found

    def _topic_id(self, topic: str) -> int:
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = self._next_topic_id
            self._next_topic_id += 1
        return known

    def _take(self, key: QueueKey, records: Block, sizes: I64, place: int) -> None:
        topic, queue_id = key
        keys = keys_of(records, sizes, place, self._topic_id(topic), queue_id)
        if not len(keys):
            return
        earlier = list(self._keys)
        while earlier and len(earlier[-1]) <= 2 * len(keys):
            keys = joined([earlier.pop(), keys])
        self._keys = [*earlier, keys]

    def _upload(
        self, keys: Keys, manifest: IndexManifest, version: Version | None
    ) -> Procedure[IndexedFile | None]:
        """A file of which nothing else has the name. None: another writer has changed the manifest,
        and may have written at the same place."""
        first_ms, last_ms = int(keys.times.min()), int(keys.times.max())
        earlier = max((file.begin_ms for file in manifest.files), default=first_ms - 1)
        begin_ms = max(first_ms, earlier + 1)
        slots = self._slots or fitting_slots(len(keys))
        raw = index_file(keys, slots, begin_ms)
        base = manifest.end
        name = self._segment(base)
        if self._positions:
            # What a crash has left there is never named, and not written again.
            while (left := (yield from ask(Size(name)))) is not None:
                base += max(1, left)
                name = self._segment(base)
            unchanged = Unchanged(self._path, version)
            try:
                for at in range(0, len(raw), _WRITTEN_BYTES):
                    yield from ask(WriteAt(name, at, raw[at : at + _WRITTEN_BYTES], unchanged))
            except SwapLostError:
                self._seen = None
                return None
        else:
            self._attempt += 1
            name = f"{name}.{self._epoch[0]:x}-{self._epoch[1]:x}-{self._attempt:x}"
            yield from ask(Create(name, raw))
        return IndexedFile(base, len(raw), slots, len(keys), begin_ms, first_ms, last_ms, name)

    def _segment(self, base: int) -> str:
        cluster, broker = self._names
        return segment_path(cluster, index_path(broker), SegmentType.INDEX, base)

    def _swap(self, seen: _Seen, following: IndexManifest) -> Procedure[bool]:
        self._seen = None
        following = replace(
            following,
            revision=seen.manifest.revision + 1,
            epoch=self._epoch,
            topics=dict(self._topics),
        )
        try:
            version = yield from ask(
                Swap(self._path, encode_index_manifest(following), seen.version)
            )
        except SwapLostError:
            return False
        self._seen, self._shown = _Seen(following, version), following
        self._revision = following.revision
        return True

    def _look(self, *, restart: bool = False) -> Procedure[_Seen]:
        """`restart`: a manifest that cannot be read counts as empty."""
        try:
            raw, version = yield from ask(Load(self._path))
        except AbsentError:
            if self._revision:
                raise PutBackError.of_revision(self._path, 0, self._revision) from None
            self._seen = _Seen(IndexManifest(*self._names, 0, self._epoch), None)
            return self._seen
        try:
            manifest = decode_index_manifest(raw)
        except CorruptRecordError:
            if not restart:
                raise
            manifest = IndexManifest(*self._names, 0, self._epoch)
        if manifest.epoch > self._epoch:
            raise FencedError(
                f"{self._path} was written by writer {manifest.epoch}; this one is {self._epoch}"
            )
        if manifest.revision < self._revision:
            raise PutBackError.of_revision(self._path, manifest.revision, self._revision)
        self._seen, self._revision = _Seen(manifest, version), manifest.revision
        return self._seen
