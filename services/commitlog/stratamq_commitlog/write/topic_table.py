"""Topics: `config/topics.json`, what is found in the log beside it, and who may write where.

The file has RocketMQ's shape (spec 8.4). Unknown entries and fields are kept when it is
written again. Topics that the log or the queues hold but the file does not are served and writable.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from stratamq.errors import CorruptRecordError, InvalidRequestError, NotFoundError, NotWritableError
from stratamq.files.journaled import SMALL_BYTES, Journaled
from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.port import Clock, Files
from stratamq.formats import json_files
from stratamq.formats.store_paths import TOPICS_PATH
from stratamq.formats.topic_minimums import DELETED, Minimums, members_of, minimums_of, ordered
from stratamq.formats.topic_minimums import MEMBER as MINIMUMS_MEMBER
from stratamq.formats.topic_types import ATTRIBUTES, MessageType, attributes_with, type_of_topic
from stratamq.formats.topics import (
    AUTO_CREATE_TOPIC,
    DRAIN_TOPIC,
    MAX_TOPIC_BYTES,
    OWN_PREFIX,
    PERMISSION_READ,
    PERMISSION_WRITE,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRACE_TOPIC,
    Drain,
    drain_of,
    is_made_for_services,
    is_system_topic,
    validate_topic_name,
)
from stratamq.rpc.changes import NO_MARK, Changes, ReadMark
from stratamq.rpc.paging import PAGE_ENTRIES, page_of_names

_TABLE = "topicConfigTable"
EXPORTED_TOPICS = 200
"""The topics of one page: encoding them takes about a millisecond."""
MAX_QUEUES = 65_536
MAX_DIRECTORY_NAME_BYTES = 255

_NOT_FOR_PRODUCERS = (SYSTEM_TOPICS - {AUTO_CREATE_TOPIC, TRACE_TOPIC}) | {TIMER_TOPIC}
"""What RocketMQ's TopicValidator refuses to take from a client, and its topic of timers."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic. Queues are numbered from 0; permission bits: 2 write, 4 read."""

    topic: str
    read_queues: int = 4
    write_queues: int = 4
    permission: int = PERMISSION_WRITE | PERMISSION_READ
    ordered: bool = False
    system_flags: int = 0
    message_type: MessageType = MessageType.UNSPECIFIED
    minimums: Minimums = ()
    """Below them nothing is read."""
    deleted: bool = False

    @property
    def writable(self) -> bool:
        return bool(self.permission & PERMISSION_WRITE)


Configs = list[TopicConfig]
_Entry = tuple[TopicConfig, JsonObject | None]
"""A topic, and its entry in the file as found there: it may have more members."""
_Entries = list[tuple[str, _Entry]]


class TopicTable:
    """All topics of one broker. `save` (after `load`) writes the file when something changed."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        *,
        auto_create: bool,
        default_queues: int,
        version2: bool = False,
        incarnation: int = 1,
        page_entries: int = PAGE_ENTRIES,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        """`incarnation`: see `Changes`."""
        self._file = MetadataFile(files, TOPICS_PATH)
        self.saving: Journaled[str, _Entry] = Journaled(
            files, self._file, _TABLE, self, clock, small_bytes=small_bytes
        )
        self._unsaved: dict[str, _Entry] = {}
        self._clock = clock
        self._auto_create = auto_create
        self._default_queues = default_queues
        self._version2 = version2
        self._page_entries = page_entries
        self._topics: dict[str, TopicConfig] = {}
        self._changes: Changes[str] = Changes(incarnation)
        self._held: dict[str, int] = {}
        """By topic, how many queues the log or the queue files are known to hold."""
        self._raw: dict[str, JsonObject] = {}
        self._rest: JsonObject = {}
        self._closed: set[str] = set()
        """Topics that are being deleted."""
        self._counter = 0
        self._changed_ms = 0
        self.version = 0
        """Grows with every change, so that caches of `writable` answers can be dropped."""

    def load(self, *, foreign: bool) -> list[str]:
        """Read the file; sentences about what was wrong with it."""
        document, apply_changes = self.saving.load(foreign=foreign, change=self._take_entries)
        if document is not None:
            self._take(document)
        apply_changes()
        return [*self._file.found.faults, *self.saving.faults]

    @property
    def dirty(self) -> bool:
        """Something is not on the disk yet."""
        return bool(self._unsaved) or self.saving.unsaved

    def adopt(self) -> None:
        """RocketMQ wrote the file since we did: it counts as it is, also at later starts."""
        self._file.load(foreign=True, keep_aside=False)
        self._file.adopt()

    def discover(self, queues: Iterable[tuple[str, int]]) -> None:
        """Make known what exists on disk; never narrows a topic, changes no file by itself."""
        found: dict[str, int] = {}
        for topic, queue_id in queues:
            found[topic] = max(found.get(topic, 0), queue_id + 1)
        for topic, count in found.items():
            self._held[topic] = count = max(count, self._held.get(topic, 0))
            known = self._topics.get(topic)
            if known is None:
                count = max(count, 1 if is_system_topic(topic) else self._default_queues)
                self._set(TopicConfig(topic, count, count))
            elif known.read_queues < count:
                self._set(replace(known, read_queues=count))
        self.version += 1

    def minimum(self, topic: str, queue_id: int) -> int:
        """Return a queue's minimum: messages below this queue offset were purged, or deleted with
        their topic."""
        config = self._topics.get(topic)
        return 0 if config is None else dict(config.minimums).get(queue_id, 0)

    def queue_count(self, topic: str) -> int:
        """All queues that it ever had messages in, as far as they are discovered, are below it.
        NotFoundError."""
        return max(self.get(topic).read_queues, self._held.get(topic, 0))

    def list(self) -> list[TopicConfig]:
        return [topic for name in sorted(self._topics) for topic in self.find(name)]

    def page(self, position: int, wanted: int = 0, contains: str = "") -> tuple[Configs, int]:
        """Topics in the order in which they became known, and where the next page begins."""
        keys, most = self._changes.keys, self._page_entries
        names, following = page_of_names(keys, position, wanted, contains, most=most)
        return [
            topic for name in names if name != DRAIN_TOPIC for topic in self.find(name)
        ], following

    def find(self, topic: str) -> Configs:
        """The topic as clients see it, if there is one of this name: a broker that is drained shows
        no permission to write."""
        config = self._topics.get(topic)
        if config is None or config.deleted:
            return []
        if topic != DRAIN_TOPIC and config.writable and self.drain is not Drain.OPEN:
            config = replace(config, permission=config.permission & ~PERMISSION_WRITE)
        return [config]

    @property
    def drain(self) -> Drain:
        """Whether this broker takes messages."""
        mark = self._topics.get(DRAIN_TOPIC)
        return drain_of(None if mark is None or mark.deleted else mark.permission)

    def get(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None or config.deleted:
            raise NotFoundError(f"there is no topic {topic[:160]!r}")
        return config

    def require_new(self, topic: str) -> None:
        """Raises InvalidRequestError when there is a topic of this name."""
        config = self._topics.get(topic)
        if config is not None and not config.deleted:
            raise InvalidRequestError(
                f"there is a topic {topic} already ({config.read_queues} queues to read, "
                f"{config.write_queues} to write, permission {config.permission}): alter it, or "
                "name another"
            )

    def put(self, config: TopicConfig) -> TopicConfig:
        """Create or change a topic. Queues that hold messages stay readable, and minimum offsets
        what they are."""
        known = self._topics.get(config.topic)
        if known is None:
            self._validate(config.topic)
        config = replace(config, minimums=() if known is None else known.minimums)
        for name, count in (("read", config.read_queues), ("write", config.write_queues)):
            if not 1 <= count <= MAX_QUEUES:
                raise InvalidRequestError(f"{name} queues: 1 to {MAX_QUEUES}, not {count}")
        if config.permission & ~(PERMISSION_READ | PERMISSION_WRITE | 1):
            raise InvalidRequestError(f"permission {config.permission}: 2 write, 4 read, 6 both")
        held = self._held.get(config.topic, 0)
        return self._store(replace(config, read_queues=max(config.read_queues, held)))

    def raise_minimums(self, topic: str, minimums: Mapping[int, int]) -> TopicConfig:
        """Hide what is below these queue offsets, by queue id; none is lowered. NotFoundError."""
        config = self.get(topic)
        raised = dict(config.minimums)
        for queue_id, offset in minimums.items():
            raised[queue_id] = max(offset, raised.get(queue_id, 0))
        return self._store(replace(config, minimums=ordered(raised.items())))

    def close(self, topic: str) -> None:
        """It is being deleted, and takes no message until `open`. NotFoundError;
        InvalidRequestError for the broker's own."""
        self.get(topic)
        if is_system_topic(topic):
            raise InvalidRequestError(f"{topic} is the broker's own: it cannot be deleted")
        self._closed.add(topic)
        self.version += 1

    def open(self, topic: str) -> None:
        """It is being deleted no more."""
        self._closed.discard(topic)
        self.version += 1

    def delete(self, topic: str, minimums: Mapping[int, int]) -> TopicConfig:
        """`minimums`: where its queues end. NotFoundError."""
        config = self.raise_minimums(topic, minimums)
        return self._store(replace(config, deleted=True, permission=0))

    def limit_minimums(self, next_offsets: Mapping[tuple[str, int], int]) -> bool:
        """The log has lost its end, or is another's: no minimum stays above where a queue goes on,
        because it would hide messages that are still to come. True when one was."""
        changed = False
        for name, config in self._topics.items():
            if not config.minimums:
                continue
            limited = ordered(
                (queue_id, min(offset, next_offsets.get((name, queue_id), 0)))
                for queue_id, offset in config.minimums
            )
            if limited != config.minimums:
                self._store(replace(config, minimums=limited))
                changed = True
        return changed

    def writable(self, topic: str, *, own: bool = False) -> TopicConfig:
        """The topic a producer names, or what `keep` would create if that is allowed. `own`: a
        service of the broker names it, which may also write, and create, system topics.

        Raises InvalidRequestError (no topic name, a system topic), NotFoundError (unknown, no auto
        creation; deleted: an operator alone makes it again) or NotWritableError (permission; the
        broker is drained).
        """
        config = self._topics.get(topic)
        if topic in self._closed or (config is not None and config.deleted):
            raise NotFoundError(
                f"topic {topic} was deleted: `stratamq topics create {topic}` makes it again"
            )
        closed = topic in _NOT_FOR_PRODUCERS or topic.startswith(OWN_PREFIX)
        if topic == DRAIN_TOPIC or (closed and not own):
            raise InvalidRequestError(f"{topic} is the broker's own: producers may not send to it")
        if topic.endswith("\0"):
            raise InvalidRequestError("a topic name that ends in a zero byte")  # would look torn
        drain = Drain.OPEN if own else self.drain  # what was taken has to leave a drained broker
        if drain is Drain.DRAINED or (drain is Drain.LEAVING and config is None):
            raise NotWritableError(
                "this broker is being drained and takes no messages: send them to another one, or "
                "let it take them again (`stratamq cluster drain-shard NAME --undo`)",
                "drained",
            )
        if config is None:
            self._validate(topic)
            if own and is_made_for_services(topic):
                return TopicConfig(topic, 1, 1)
            if not self._auto_create:
                raise NotFoundError(
                    f"there is no topic {topic!r}: create it, or set commitlog.auto_create_topics"
                )
            return TopicConfig(topic, self._default_queues, self._default_queues)
        if not config.writable:
            raise NotWritableError(f"topic {topic} has no write permission", "permission")
        return config

    def keep(self, config: TopicConfig) -> None:
        """Create the topic unless there is one of this name, as `writable` found it."""
        if config.topic not in self._topics:
            self.put(config)

    def export_changes(self, mark: ReadMark = NO_MARK) -> tuple[bytes, ReadMark]:
        """A document with a page of the topics that changed since a mark (empty: none did), and
        the mark to ask with next."""
        names, following = self._changes.since(mark, min(self._page_entries, EXPORTED_TOPICS))
        if not names:
            return b"", following
        table = self.encode((name, self._entry(name)) for name in names)
        return json.dumps({**self._head(), _TABLE: table}).encode(), following

    def import_json(self, raw: bytes, next_offsets: Mapping[tuple[str, int], int]) -> None:
        """Take over a master's topics (spec 11.6). What the document does not name stays.

        NotWritableError (`behind`) when a minimum offset is above where the queue goes on here:
        should the log never get the messages in between, it would hide others.
        """
        try:
            document = json_files.parse_json_object(raw)
        except CorruptRecordError as error:
            raise InvalidRequestError(f"topics: {error.message}") from error
        table = document.get(_TABLE)
        for name, entry in table.items() if isinstance(table, dict) else ():
            for queue_id, offset in minimums_of(entry):
                if offset > next_offsets.get((name, queue_id), 0):
                    raise NotWritableError(
                        f"queue {queue_id} of {name} does not reach its minimum {offset} yet",
                        "behind",
                    )
        self._take(document)
        self._changed()

    def save(self) -> None:
        """Everything into the file itself; durable on return. OSError leaves it dirty."""
        if self.dirty or self.saving.behind:
            self.saving.save_blocking()

    # --- what `Journaled` asks ---

    def __len__(self) -> int:
        return len(self._topics)

    def take_changed(self) -> dict[str, _Entry]:
        changed, self._unsaved = self._unsaved, {}
        return changed

    def entries(self, place: int, most: int) -> tuple[_Entries, int]:
        names = self._changes.keys[place : place + most]
        return [(name, self._entry(name)) for name in names], place + len(names)

    def encode(self, entries: Iterable[tuple[str, _Entry]]) -> JsonObject:
        return {name: _json_of(*entry) for name, entry in entries}

    def document(self) -> JsonObject:
        names = sorted(self._topics)
        return {**self.head(), _TABLE: self.encode((name, self._entry(name)) for name in names)}

    def head(self) -> JsonObject:
        self._counter += 1
        return self._head()

    def _validate(self, topic: str) -> None:
        longest = MAX_DIRECTORY_NAME_BYTES if self._version2 else MAX_TOPIC_BYTES
        for start in range(0, max(len(topic), 1), MAX_TOPIC_BYTES):
            validate_topic_name(topic[start : start + MAX_TOPIC_BYTES])
        if len(topic) > longest:
            raise InvalidRequestError(f"a topic name has at most {longest} bytes")

    def _changed(self) -> None:
        self._changed_ms = self._clock.wall_ms()
        self.version += 1

    def _take(self, document: JsonObject) -> None:
        self._rest = {k: v for k, v in document.items() if k != _TABLE}
        version = document.get("dataVersion")
        if isinstance(version, dict) and isinstance(version.get("counter"), int):
            self._counter = version["counter"]
        if isinstance(version, dict) and isinstance(version.get("timestamp"), int):
            self._changed_ms = version["timestamp"]
        table = document.get(_TABLE)
        if isinstance(table, dict):
            self._take_entries(table)
        self.version += 1

    def _take_entries(self, table: JsonObject) -> None:
        for name, entry in table.items():
            if not isinstance(entry, dict) or not isinstance(name, str) or not name:
                continue
            self._raw[name] = entry
            read_queues = _number(entry, "readQueueNums", 4, 1, MAX_QUEUES)
            config = TopicConfig(
                topic=name,
                read_queues=max(read_queues, self._held.get(name, 0)),
                write_queues=_number(entry, "writeQueueNums", 4, 1, MAX_QUEUES),
                permission=_number(entry, "perm", 6, 0, 7),
                ordered=entry.get("order") is True,
                system_flags=_number(entry, "topicSysFlag", 0, 0, 1 << 30),
                message_type=type_of_topic(entry),
                minimums=minimums_of(entry),
                deleted=entry.get(DELETED) is True,
            )
            self._set(config)
            self._unsaved[name] = self._entry(name)

    def _store(self, config: TopicConfig) -> TopicConfig:
        self._set(config)
        self._unsaved[config.topic] = self._entry(config.topic)
        self._changed()
        return config

    def _set(self, config: TopicConfig) -> None:
        self._topics[config.topic] = config
        self._changes.note(config.topic)

    def _entry(self, name: str) -> _Entry:
        return self._topics[name], self._raw.get(name)

    def _head(self) -> JsonObject:
        kept_version = self._rest.get("dataVersion")
        version = {
            **(kept_version if isinstance(kept_version, dict) else {}),
            "counter": self._counter,
            "timestamp": self._changed_ms,
        }
        return {**self._rest, "dataVersion": version}


def _json_of(config: TopicConfig, kept: JsonObject | None) -> JsonObject:
    known: JsonObject = {
        "order": config.ordered,
        "perm": config.permission,
        "readQueueNums": config.read_queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": config.topic,
        "topicSysFlag": config.system_flags,
        "writeQueueNums": config.write_queues,
    }
    known |= {DELETED: True} if config.deleted else {}
    known |= attributes_with((kept or {}).get(ATTRIBUTES), config.message_type)
    ours = {*known, MINIMUMS_MEMBER, DELETED} - {"topicFilterType"}
    rest = {k: v for k, v in (kept or {}).items() if k not in ours}
    return {**known, **rest, **members_of(config.minimums)}


def _number(entry: dict[str, object], name: str, default: int, least: int, most: int) -> int:
    value = entry.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        return default
    return value
