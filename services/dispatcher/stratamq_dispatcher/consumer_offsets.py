"""How far every consumer group has read: `config/consumerOffset.json`, RocketMQ's shape.

    {"offsetTable": {"topic@group": {"0": 123, "1": 7}}}

Numbers are the next queue offset the group will read. Other members of the document (5.x has
`dataVersion`) are kept as they are. Saved when something changed, every few seconds and at the end,
on the writer's lane (`files.journaled`: a large file is written more seldom, its changes are not);
what was committed after the last saving is lost with the process, as in RocketMQ, and read again by
the group.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.files.journaled import SMALL_BYTES, Journaled
from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.paths import base_name
from stratamq.files.port import Clock, Files, Worker
from stratamq.formats.json_files import format_json, parse_json_object
from stratamq.formats.numbers import INT32_MAX, INT64_MAX
from stratamq.formats.store_paths import ASIDE_DIRECTORY, CONSUMER_OFFSETS_PATH
from stratamq.formats.text import LONGEST_NAME_BYTES
from stratamq.rpc.changes import NO_MARK, Changes, ReadMark
from stratamq.rpc.paging import PAGE_ENTRIES, NestedPlace, SortedEntries, nested_page

log = logging.getLogger(__name__)

_TABLE = "offsetTable"

_REMOVED = -1
"""In place of an offset that changed; null in the journal."""
BEGIN = NestedPlace()

GroupOffset = tuple[str, int, int]
"""topic, queue id, offset."""
GroupTopic = tuple[str, str]
QueueOfGroup = tuple[str, str, int]
"""group, topic, queue id."""
Committed = tuple[str, str, int, int]
"""group, topic, queue id, offset."""


class ConsumerOffsets:
    """Belongs to the engine's thread; `load` comes first."""

    def __init__(
        self,
        files: Files,
        worker: Worker,
        clock: Clock,
        interval_ms: int,
        *,
        incarnation: int = 1,
        page_entries: int = PAGE_ENTRIES,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        """`incarnation` is another one in each process, and not 0."""
        self.report: list[str] = []
        self.incarnation = incarnation
        """Another one when the table is another one."""
        self.reshaped = 0
        """Another number when a queue came to a topic of a group, or went."""
        self._sorted: SortedEntries[GroupTopic] = SortedEntries()
        self._page_entries = page_entries
        self._files = files
        self._kept_copy = False
        self._file = MetadataFile(files, CONSUMER_OFFSETS_PATH)
        self._saving: Journaled[QueueOfGroup, int] = Journaled(
            files, self._file, _TABLE, self, clock, small_bytes=small_bytes
        )
        self._worker = worker
        self._clock = clock
        self._interval_ns = interval_ms * 1_000_000
        self._next_ns = clock.monotonic_ns() + self._interval_ns
        self._by_group: dict[str, dict[str, dict[int, int]]] = {}
        self._topics: dict[str, list[GroupTopic]] = {}
        """By group, what it has committed of, in the order in which that came."""
        self._groups: dict[str, list[GroupTopic]] = {}
        """The same by topic."""
        self._changes: Changes[GroupTopic] = Changes(incarnation)
        self._others: JsonObject = {}
        self._changed: dict[QueueOfGroup, int] = {}
        self._touched = False

    def load(self, *, foreign: bool = False) -> None:
        """Never raises for what the file holds: the last good one counts, damage is reported.

        `foreign`: RocketMQ ran since our last writing, so that its file counts even if it
        fits no checksum of ours. It is ignored once something was committed here.
        """
        if self._touched:
            return
        data, apply_changes = self._saving.load(foreign=foreign, change=self._take_entries)
        self.report = [*self._file.found.faults, *self._saving.faults]
        self._by_group, self._topics, self._groups, self._others = {}, {}, {}, {}
        self.incarnation += 1
        self._changes = Changes(self.incarnation)
        if data is not None:
            self._take(*_parsed(data, self.report))
        apply_changes()
        self._changed = {}
        if foreign:
            # Else the next start, which does not know that RocketMQ ran, would prefer an older one.
            self._worker.submit(self._file.adopt, lambda _, error: self._stored(error))

    def commit(self, group: str, offsets: Iterable[GroupOffset]) -> None:
        """All of them or none. Offsets may go back: a group may want to read again.

        Raises InvalidRequestError. Where queues end `offset_bounds` knows.
        """
        taken = list(offsets)
        self.check(group, taken)
        self.put(group, taken)

    def put(self, group: str, offsets: Iterable[GroupOffset]) -> None:
        """Does what `commit` does, for names that are in the table already: RocketMQ's may be
        others than we take from clients."""
        self._touched = True
        for topic, queue_id, offset in offsets:
            queues = self._queues_of((group, topic))
            before = queues.get(queue_id)
            if before != offset:
                self.reshaped += before is None
                queues[queue_id] = offset
                self._changes.note((group, topic))
                self._changed[group, topic, queue_id] = offset

    def keep_copy(self) -> None:
        """Before any offset is lowered: the table as it is, once in a process, under
        `stratamq/aside/`."""
        if self._kept_copy:
            return
        self._kept_copy = True
        raw, files = format_json(self.document()), self._files
        target = f"{ASIDE_DIRECTORY}/{base_name(CONSUMER_OFFSETS_PATH)}-{self._clock.wall_ms()}"
        log.warning("offsets lowered, previous offsets saved", extra={"in": target})

        def keep() -> None:
            files.make_directory(ASIDE_DIRECTORY)
            files.rewrite(target, len(raw), lambda file: file.write(0, raw))

        self._worker.submit(keep, lambda _, error: self._stored(error))

    def delete(self, group: str, topic: str = "") -> int:
        """Forget what a group has committed, with "" of all topics: the number of queues."""
        count = 0
        for key in self._topics.get(group, []):
            queue_ids = list(self.queues_of(key))
            if queue_ids and topic in ("", key[1]):
                self._touched = True
                self._remove(key, queue_ids)
                count += len(queue_ids)
        return count

    def forget_topics(self, topics: Collection[str]) -> None:
        """What groups have committed of these topics."""
        for group, topic in list(self.keys):
            if topic in topics:
                self.delete(group, topic)

    def check(self, group: str, offsets: Iterable[GroupOffset]) -> None:
        """Whether they can be stored at all. Raises InvalidRequestError."""
        _check_name("group", group)
        for topic, queue_id, offset in offsets:
            _check_name("topic", topic)
            if not 0 <= queue_id <= INT32_MAX:
                raise InvalidRequestError(f"queue id {queue_id} is not between 0 and {INT32_MAX}")
            if not 0 <= offset <= INT64_MAX:
                raise InvalidRequestError(f"offset {offset} of {topic} {queue_id} is negative")

    @property
    def keys(self) -> Sequence[GroupTopic]:
        """What groups have committed of, in the order in which that came. Keys never go, but with
        the incarnation."""
        return self._changes.keys

    def keys_of(self, group: str) -> Sequence[GroupTopic]:
        """Those of one group, in the same order."""
        return self._topics.get(group, [])

    def keys_of_topic(self, topic: str) -> Sequence[GroupTopic]:
        """Those of one topic, in the same order."""
        return self._groups.get(topic, [])

    def queues_of(self, key: GroupTopic) -> Mapping[int, int]:
        """Offsets by queue id; none for a key that is not there."""
        return self._by_group.get(key[0], {}).get(key[1], {})

    def committed(
        self, group: str, topic: str = "", place: NestedPlace = BEGIN, wanted: int = 0
    ) -> tuple[list[Committed], NestedPlace | None]:
        """A page of what a group has committed, with "" of all topics, and where the next page
        begins; None: there is none. Raises InvalidRequestError."""
        keys = self.keys_of(group)
        if topic:
            keys = [(group, topic)] if topic in self._by_group.get(group, {}) else []

        def queue_ids(key: GroupTopic) -> Sequence[int]:
            version = self.incarnation, self.reshaped
            return self._sorted.of(key, version, lambda: self.queues_of(key))

        found, following = nested_page(keys, queue_ids, place, wanted, most=self._page_entries)
        return [(*key, one, self.queues_of(key)[one]) for key, one in found], following

    def export_changes(self, mark: ReadMark = NO_MARK) -> tuple[bytes, ReadMark]:
        """A document with a page of what changed since a mark, topic and group at a time (empty:
        nothing), and the mark to ask with next."""
        keys, following = self._changes.since(
            mark, self._page_entries, lambda key: len(self._by_group[key[0]][key[1]])
        )
        return format_json(self._document(keys)) if keys else b"", following

    def import_document(self, raw: bytes) -> None:
        """Take over a master's offsets: what it names replaces ours, topic and group at a time.

        Raises InvalidRequestError for anything that is not such a document.
        """
        try:
            data = parse_json_object(raw)
        except CorruptRecordError as error:
            raise InvalidRequestError(f"no consumer offsets: {error.message}") from error
        if not isinstance(data.get(_TABLE), dict):
            raise InvalidRequestError(f"no consumer offsets: {_TABLE} is missing or no object")
        faults: list[str] = []
        others, offsets = _parsed(data, faults)
        if faults:
            raise InvalidRequestError(f"no consumer offsets: {faults[0]}")
        self._take(others, offsets)
        self._touched = True

    def tick(self) -> None:
        """To be called a few times a second."""
        now = self._clock.monotonic_ns()
        if now >= self._next_ns:
            self._next_ns = now + self._interval_ns
            if self._changed or self._saving.unsaved:
                self._saving.save(self._worker.submit, self._stored)
        self._saving.tick(self._worker.submit)

    def close(self, done: Callable[[], None]) -> None:
        """Write everything into the file itself, then call `done`, also when that fails."""
        if not (self._changed or self._saving.unsaved or self._saving.behind):
            done()
            return

        def stored(error: BaseException | None) -> None:
            self._stored(error)
            done()

        self._saving.save_whole(self._worker.submit, stored)

    def _stored(self, error: BaseException | None) -> None:
        if error is not None:
            log.error("consumer offsets not saved, retrying", extra={"error": str(error)})

    # --- what `Journaled` asks ---

    def __len__(self) -> int:
        return len(self._changes.keys)

    def take_changed(self) -> dict[QueueOfGroup, int]:
        changed, self._changed = self._changed, {}
        return changed

    def entries(self, place: int, most: int) -> tuple[list[tuple[QueueOfGroup, int]], int]:
        taken: list[tuple[QueueOfGroup, int]] = []
        keys = self._changes.keys
        while place < len(keys) and len(taken) < most:
            group, topic = keys[place]
            for queue_id, offset in self._by_group[group][topic].items():
                taken.append(((group, topic, queue_id), offset))
            place += 1
        return taken, place

    def encode(self, entries: Iterable[tuple[QueueOfGroup, int]]) -> JsonObject:
        table: dict[str, dict[str, int | None]] = {}
        for (group, topic, queue_id), offset in entries:
            queues = table.setdefault(f"{topic}@{group}", {})
            queues[str(queue_id)] = None if offset == _REMOVED else offset
        return dict(table)

    def document(self) -> JsonObject:
        return self._document(sorted(self._changes.keys))

    def head(self) -> JsonObject:
        return self._others

    def _queues_of(self, key: GroupTopic) -> dict[int, int]:
        group, topic = key
        topics = self._by_group.setdefault(group, {})
        if topic not in topics:
            topics[topic] = {}
            self._topics.setdefault(group, []).append(key)
            self._groups.setdefault(topic, []).append(key)
        return topics[topic]

    def _document(self, keys: Iterable[GroupTopic]) -> JsonObject:
        table = {
            f"{topic}@{group}": {
                str(queue_id): offset
                for queue_id, offset in sorted(self._by_group[group][topic].items())
            }
            for group, topic in keys
        }
        return {_TABLE: table, **self._others}

    def _take(self, others: JsonObject, offsets: dict[GroupTopic, dict[int, int]]) -> None:
        self._others = self._others | others
        for key, queues in offsets.items():
            self._remove(key, [one for one in self._queues_of(key) if one not in queues])
            self._set(key, queues)

    def _take_entries(self, table: JsonObject) -> None:
        """Changes: other queues of the same group and topic stay, those with null go."""
        there: JsonObject = {}
        for name, queues in table.items():
            if not isinstance(queues, dict):
                continue
            there[name] = {one: offset for one, offset in queues.items() if offset is not None}
            topic, _, group = name.partition("@")
            numbers = [_queue_id(one) for one, offset in queues.items() if offset is None]
            self._remove((group, topic), [one for one in numbers if one is not None])
        for key, offsets in _parsed({_TABLE: there}, self.report)[1].items():
            self._set(key, offsets)

    def _remove(self, key: GroupTopic, queue_ids: list[int]) -> None:
        held = self._queues_of(key)
        for queue_id in queue_ids:
            held.pop(queue_id, None)
            self._changed[*key, queue_id] = _REMOVED
        if queue_ids:
            self._changes.note(key)
            self.reshaped += 1

    def _set(self, key: GroupTopic, queues: dict[int, int]) -> None:
        held = self._queues_of(key)
        before = len(held)
        held.update(queues)
        self.reshaped += len(held) != before
        self._changes.note(key)
        self._changed.update({(*key, queue_id): offset for queue_id, offset in queues.items()})


def _parsed(
    data: JsonObject, faults: list[str]
) -> tuple[JsonObject, dict[GroupTopic, dict[int, int]]]:
    """The other members, and everything that makes sense; the rest becomes a fault."""
    others = {name: value for name, value in data.items() if name != _TABLE}
    parsed: dict[GroupTopic, dict[int, int]] = {}
    table = data.get(_TABLE, {})
    if not isinstance(table, dict):
        faults.append(f"{_TABLE} is no object")
        return others, parsed
    for name, queues in table.items():
        topic, at, group = name.partition("@")
        if not (topic and at and group and isinstance(queues, dict) and _is_utf8(name)):
            faults.append(f"{name[:160]!r} is no topic@group with offsets")
            continue
        offsets = parsed[group, topic] = {}
        for queue_id, offset in queues.items():
            number = _queue_id(queue_id)
            if number is None or type(offset) is not int or not 0 <= offset <= INT64_MAX:
                faults.append(f"{name[:160]!r}: {queue_id!r}: {offset!r} is no offset")
            else:
                offsets[number] = offset
    return others, parsed


def _queue_id(text: str) -> int | None:
    """None: no queue has this number."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(INT32_MAX))):
        return None
    return number if (number := int(text)) <= INT32_MAX else None


def _is_utf8(name: str) -> bool:
    """JSON has lone halves of surrogate pairs, and messages of the wire do not take them."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_name(what: str, name: str) -> None:
    if not name:
        raise InvalidRequestError(f"the {what} is empty")
    if "@" in name or not name.isprintable():
        raise InvalidRequestError(f"{what} {name[:160]!r} has a character that cannot be stored")
    if len(name.encode("utf-8", "replace")) > LONGEST_NAME_BYTES:
        raise InvalidRequestError(f"the {what} has more than {LONGEST_NAME_BYTES} bytes")
