"""What the tier has of each queue: its manifest, as of the last commit or the last look."""

from bisect import bisect_right
from dataclasses import dataclass

from stratamq.errors import CorruptRecordError
from stratamq.formats.tier_manifest import Manifest
from stratamq.tier.writing.intake import QueueKey


@dataclass(frozen=True, slots=True)
class TierQueueEntry:
    """`revision`: of the table, when the queue changed last."""

    manifest: Manifest
    revision: int


@dataclass(frozen=True, slots=True)
class DamagedQueue:
    """What the tier has of it is not known: its manifest cannot be read."""

    topic: str
    queue_id: int
    revision: int
    error: CorruptRecordError


@dataclass(frozen=True, slots=True)
class TablePage:
    """`next_position` 0: there is no more."""

    entries: tuple[TierQueueEntry | DamagedQueue, ...]
    next_position: int
    revision: int


class TierQueueTable:
    """Belongs to the event loop. The cost of a change and of a page does not depend on the number
    of queues."""

    def __init__(self, revision: int = 0) -> None:
        """`revision`: above those of every table before it, so that a client that knows one of
        them is told of all queues."""
        self.revision = revision
        self._entries: dict[QueueKey, TierQueueEntry] = {}
        self._damaged: dict[QueueKey, DamagedQueue] = {}
        self._by_topic: dict[str, dict[int, Manifest]] = {}
        self.lost: dict[QueueKey, int] = {}
        """By queue, how many of its messages are lost."""
        self.lost_messages = 0
        """The same of all queues."""
        self.put_back: set[QueueKey] = set()
        """Queues whose manifest became older than it had been."""
        self._changes: list[tuple[int, QueueKey]] = []
        """By revision; those that a later change has replaced are passed over."""

    def __len__(self) -> int:
        return len(self._entries.keys() | self._damaged.keys())

    def put(self, manifest: Manifest, asked_at: Manifest | None = None) -> None:
        """A manifest that is older than the known one changes nothing, unless the known one is
        `asked_at`, which was known when this one was asked for: then it was put back."""
        key = manifest.key
        known = self._entries.get(key)
        damage = self._damaged.pop(key, None)
        if damage is None and known is not None:
            put_back = known.manifest is asked_at and known.manifest.revision > manifest.revision
            if known.manifest.revision >= manifest.revision and not put_back:
                return
            if put_back:
                self.put_back.add(key)
        self._entries[key] = TierQueueEntry(manifest, self._changed(key))
        self._by_topic.setdefault(manifest.topic, {})[manifest.queue_id] = manifest
        self._count_lost(key, manifest)

    def _count_lost(self, key: QueueKey, manifest: Manifest) -> None:
        lost = sum(hole.end - hole.start for hole in manifest.lost)
        self.lost_messages += lost - self.lost.pop(key, 0)
        if lost:
            self.lost[key] = lost

    @property
    def lost_example(self) -> str:
        """Some of what is lost, of one queue; "": nothing is."""
        for (topic, queue_id), _ in self.lost.items():
            holes = self._entries[topic, queue_id].manifest.lost[:3]
            offsets = ", ".join(f"{one.start} to {one.end}" for one in holes)
            return f"queue {queue_id} of {topic}: offsets {offsets}"
        return ""

    def put_damaged(self, key: QueueKey, error: CorruptRecordError) -> None:
        """The queue's manifest cannot be read; until one that can is put."""
        known = self._damaged.get(key)
        if known is None or str(known.error) != str(error):
            self._damaged[key] = DamagedQueue(*key, self._changed(key), error)

    def require_readable(self, key: QueueKey) -> None:
        """CorruptRecordError for a queue of which it is not known what the tier has."""
        if key in self._damaged:
            raise self._damaged[key].error

    def get(self, topic: str, queue_id: int) -> TierQueueEntry | None:
        return self._entries.get((topic, queue_id))

    def end_of(self, key: QueueKey) -> int:
        """Up to which queue offset the tier has the queue; 0: that is not known."""
        entry = self._entries.get(key)
        return entry.manifest.end_offset if entry is not None and key not in self._damaged else 0

    @property
    def damaged(self) -> list[DamagedQueue]:
        return list(self._damaged.values())

    def of_topic(self, topic: str) -> list[Manifest]:
        """Return the manifests of the topic's queues."""
        return list(self._by_topic.get(topic, {}).values())

    def manifests(self) -> list[Manifest]:
        """The same of all queues."""
        return [entry.manifest for entry in self._entries.values()]

    def page(self, after_revision: int, position: int, most: int, topic: str = "") -> TablePage:
        """Queues that changed behind `after_revision`, at most `most` (1 or more), from `position`
        on: 0, then `next_position` of the page before. Those that change meanwhile come once more.
        """
        start = bisect_right(self._changes, (max(after_revision, position), _ANY))
        found: list[TierQueueEntry | DamagedQueue] = []
        for revision, key in self._changes[start:]:
            entry = self._damaged.get(key) or self._entries[key]
            if entry.revision != revision or (topic and key[0] != topic):
                continue
            if len(found) == most:
                return TablePage(tuple(found), found[-1].revision, self.revision)
            found.append(entry)
        return TablePage(tuple(found), 0, self.revision)

    def _changed(self, key: QueueKey) -> int:
        self.revision += 1
        self._changes.append((self.revision, key))
        if len(self._changes) > 2 * len(self) + 64:
            of_all = {**self._entries, **self._damaged}
            latest = {key: one.revision for key, one in of_all.items()}
            self._changes = sorted((at, one) for one, at in {**latest, key: self.revision}.items())
        return self.revision


_ANY = ("\U0010ffff", 1 << 62)
"""Behind every queue of a revision."""
