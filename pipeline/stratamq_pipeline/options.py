"""The options of the data source: Kafka's names, the old rocketmq-spark connector's as aliases.

| option | default | meaning |
|---|---|---|
| `path` | | a store's directory, `host:port` of any service of a broker, a tier; see `places` |
| `tlsCa`, `tlsCertificate`, `tlsKey` | | PEM files, as the variables STRATAMQ_TLS_… name them |
| `token`, `tokenFile` | | a token, or a file with one; none of these variables is used then |
| `tier` | | the tier that the store's messages are uploaded to, read with its log |
| `cluster` | the only one | whose tier, where one target has several |
| `broker` | the only one | whose tier; at an address behind which are several, whose log |
| `subscribe` (`topic`) | every topic | topics, separated by commas |
| `subscribePattern` | | a regular expression that the whole topic matches |
| `queues` | every queue | queue ids, separated by commas |
| `startingOffsets` | `earliest`; a stream: `latest` | or `latest`, or JSON: see below |
| `endingOffsets` | `latest` | the same; of a batch alone |
| `startingTimestamp` | | milliseconds: store time at or after |
| `endingTimestamp` | | milliseconds: store time before; of a batch alone |
| `failOnDataLoss` | `true` | whether offsets that have gone end the query |
| `minPartitions` | | at least so many partitions |
| `partitionBytes` | 134217728 | about so many bytes of the log a partition |
| `columns` | all | columns, separated by commas: nothing else is decoded |
| `shape` | `messages` | `kafka`: the columns of Spark's Kafka source, see `table_columns` |
| `includeHeaders` | `true` | with `shape=kafka`: whether there is the column `headers` |
| `decompress` | `false`; `shape=kafka`: `true` | bodies as producers had them |
| `verifyCrc` | `true` | hold every frame against its checksums; a broker always does |
| `mode` | `failfast` | `permissive` passes over damaged stretches of files |
| `table` | `messages` | `damage`: the damaged stretches of files instead, a row each |
| `includeUnqueued` | `false` | also what stands in no queue: prepared and rolled back messages |
| `pushDown` | `false` | take filters over where Spark's setting allows: see `pushdown` |
| `maxOffsetsPerTrigger` | | a stream's batch has at most so many messages |
| `maxBytesPerTrigger` | | a stream's batch has at most so many bytes of frames, or one frame |
| `minOffsetsPerTrigger` | | a stream waits for so many messages, |
| `maxTriggerDelay` | `15m` | but not longer than this |

JSON names single queues, as `{"topic": {"0": 23, "1": -2}}`: −2 is earliest, −1 latest. Queues of
the topic that it does not name are read whole; topics that it does not name are read when they are
subscribed, and when nothing is subscribed, the named ones are. Broker names may stand between.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stratamq.errors import InvalidRequestError
from stratamq.formats.nearest import did_you_mean
from stratamq.table.selection import FOREVER, Queue, Selection
from stratamq.table.where import is_address, is_tier
from stratamq_pipeline.table_columns import KAFKA_SCHEMA

EARLIEST, LATEST = -2, -1
ALIASES = {"topic": "subscribe", "topics": "subscribe"}
ACCESS = ("tlsCa", "tlsCertificate", "tlsKey", "token", "tokenFile")
REFUSED = {
    "assign": "name topics by subscribe and queue ids by queues",
    "startingOffsetsByTimestamp": "use startingTimestamp, one moment for all queues",
    "endingOffsetsByTimestamp": "use endingTimestamp, one moment for all queues",
    "maxRecordsPerPartition": "use partitionBytes",
    "kafka.bootstrap.servers": "name the broker as the path: .load('HOST:PORT')",
    "subExpression": "choose by the column tags: .where(\"tags IN ('A', 'B')\")",
}
"""Options of Kafka's and of the old connector that choose other rows here, and what to use
instead."""
_DELAY_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

Bounds = int | dict[Queue, int]
"""`EARLIEST`, `LATEST`, or a queue offset for single queues, these words among them."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked at once; InvalidRequestError names the option."""

    path: str | tuple[str, ...]
    """One log: a directory, an address, or segment files; "" with `tier` alone."""
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: frozenset[int] | None = None
    starting: Bounds | None = None
    """None: not given."""
    ending: Bounds = LATEST
    since_ms: int | None = None
    until_ms: int | None = None
    fail_on_data_loss: bool = True
    min_partitions: int = 0
    partition_bytes: int = 128 << 20
    decompress: bool = False
    verify: bool = True
    permissive: bool = False
    damage_table: bool = False
    queued_only: bool = True
    push_down: bool = False
    max_offsets: int = 0
    """Per trigger; 0: no limit. So are the next two."""
    max_bytes: int = 0
    min_offsets: int = 0
    max_delay_ms: int = 900_000
    bounded: str = ""
    """The option that sets where to end, for streams to refuse."""
    tier: str = ""
    """Read with the log, or, where `path` is empty, alone."""
    cluster: str | None = None
    broker: str | None = None
    columns: tuple[str, ...] | None = None
    paths: tuple[str, ...] = ()
    """What was named; `places.logs_of` gives the options of each log."""
    access: dict[str, str] = field(default_factory=dict, repr=False)
    """The options of `ACCESS` that were given."""
    kafka: bool = False
    """The columns of Spark's Kafka source, `headers` among them if `columns` is None."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """From Spark's options, whose names are case-insensitive."""
        given = _Given(options)
        paths, tier = _places(given)
        mode = given.one_of("mode", "failfast", "permissive")
        table = given.one_of("table", "messages", "damage")
        kafka = given.one_of("shape", "messages", "kafka") == "kafka"
        for path in paths:
            _check_place(path, tier, permissive=mode == "permissive", damage=table == "damage")
        if tier and table == "damage":
            raise InvalidRequestError("a tier gives no damaged stretches: use verify-tier")
        if kafka and table == "damage":
            raise InvalidRequestError("shape=kafka is of messages, not of table=damage")
        topics, pattern = _words(given.text("subscribe")), given.optional("subscribePattern")
        if topics and pattern:
            raise InvalidRequestError("subscribe and subscribePattern exclude each other")
        if pattern is not None:
            _regular_expression(pattern)
        ending, until = given.optional("endingOffsets"), given.optional("endingTimestamp")
        bounded = "endingOffsets" if ending else "endingTimestamp" if until else ""
        starting = given.optional("startingOffsets")
        found = cls(
            path=paths[0] if paths else "",
            paths=paths,
            access=given.some(ACCESS),
            tier=tier,
            cluster=given.optional("cluster"),
            broker=given.optional("broker"),
            topics=frozenset(topics) or None,
            topic_pattern=pattern,
            queues=frozenset(_number("queues", word) for word in _words(given.text("queues")))
            or None,
            starting=None if starting is None else _bounds("startingOffsets", starting),
            ending=_bounds("endingOffsets", ending or "latest"),
            since_ms=_optional("startingTimestamp", given.optional("startingTimestamp")),
            until_ms=_optional("endingTimestamp", until),
            fail_on_data_loss=given.flag("failOnDataLoss", default=True),
            min_partitions=given.number("minPartitions"),
            partition_bytes=max(1, given.number("partitionBytes", 128 << 20)),
            decompress=given.flag("decompress", default=kafka),
            verify=given.flag("verifyCrc", default=True),
            permissive=mode == "permissive",
            damage_table=table == "damage",
            queued_only=not given.flag("includeUnqueued", default=False),
            push_down=given.flag("pushDown", default=False),
            max_offsets=given.number("maxOffsetsPerTrigger"),
            max_bytes=given.number("maxBytesPerTrigger"),
            min_offsets=given.number("minOffsetsPerTrigger"),
            max_delay_ms=_delay_ms("maxTriggerDelay", given.text("maxTriggerDelay") or "15m"),
            bounded=bounded,
            columns=_columns(given, kafka=kafka),
            kafka=kafka,
        )
        given.refuse_others()
        return found

    @property
    def named_queues(self) -> set[Queue]:
        """Those of which an offset is named."""
        bounds = (self.starting, self.ending)
        return {queue for one in bounds if isinstance(one, dict) for queue in one}

    def selection(self, **more: Any) -> Selection:
        """The messages of a batch, or, without its bounds, of a stream. `more`: fields of
        `Selection` that are set otherwise."""
        topics = self.topics
        if topics is None and self.topic_pattern is None and self.named_queues:
            topics = frozenset(topic for topic, _ in self.named_queues)
        fields: dict[str, Any] = {
            "topics": topics,
            "topic_pattern": self.topic_pattern,
            "queues": self.queues,
            "offsets": self._single_queues(),
            "others_too": True,
            "since_ms": self.since_ms,
            "until_ms": self.until_ms,
            "queued_only": self.queued_only,
        }
        if (self.starting == LATEST and self.since_ms is None) or self.ending == EARLIEST:
            fields["all_offsets"] = (0, 0)
        return Selection(**{**fields, **more})

    def _single_queues(self) -> dict[Queue, tuple[int, int]]:
        starting = self.starting if isinstance(self.starting, dict) else {}
        ending = self.ending if isinstance(self.ending, dict) else {}
        ranges = {}
        for queue in self.named_queues:
            begin, end = starting.get(queue, EARLIEST), ending.get(queue, LATEST)
            if begin == LATEST or end == EARLIEST:
                ranges[queue] = (0, 0)
            else:
                begin = max(begin, 0)
                ranges[queue] = (begin, FOREVER if end == LATEST else max(begin, end))
        return ranges


class _Given:
    """Options as they were given. Asking for one makes its name known."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {
            ALIASES.get(name.lower(), name.lower()): value for name, value in options.items()
        }
        self._known: list[str] = []

    def optional(self, name: str) -> str | None:
        self._known.append(name)
        return self._values.get(name.lower())

    def text(self, name: str) -> str:
        return self.optional(name) or ""

    def some(self, names: Sequence[str]) -> dict[str, str]:
        """Those of the options that were given."""
        return {name: value for name in names if (value := self.optional(name)) is not None}

    def number(self, name: str, default: int = 0) -> int:
        given = self.optional(name)
        return default if given is None else _number(name, given)

    def flag(self, name: str, *, default: bool) -> bool:
        given = self.optional(name)
        return default if given is None else _flag(name, given)

    def one_of(self, name: str, *words: str) -> str:
        """The first of the words is the default."""
        word = (self.optional(name) or words[0]).lower()
        _one_of(name, word, words)
        return word

    def refuse_others(self) -> None:
        """InvalidRequestError for an option that was not asked for."""
        for name, advice in REFUSED.items():
            if self._values.pop(name.lower(), "*").strip() != "*":  # the old connector's "all"
                raise InvalidRequestError(f"there is no option {name} here: {advice}")
        known = {name.lower() for name in self._known}
        for name in self._values:
            if name not in known:
                names = [*self._known, *ALIASES]
                raise InvalidRequestError(f"there is no option {name}{did_you_mean(name, names)}")


def _places(given: _Given) -> tuple[tuple[str, ...], str]:
    """The logs, and the tier: one of them may be empty."""
    paths = [given.text("path")] if given.optional("path") else []
    try:
        paths += json.loads(given.text("paths") or "[]")  # of load([a, b])
    except ValueError:
        raise InvalidRequestError("paths is a JSON list of strings") from None
    named, tier = tuple(_local(path) for path in paths), _local(given.text("tier"))
    if not named:
        raise InvalidRequestError("no path: .load(DIRECTORY) or .option('path', 'HOST:PORT')")
    if len(named) > 1 and (tier or any(is_tier(path) for path in named)):
        raise InvalidRequestError("a tier is read with one store's directory, or alone")
    return ((), named[0]) if not tier and is_tier(named[0]) else (named, tier)


def _local(path: str) -> str:
    """The path of a URL `file:…`; anything else stays."""
    return re.sub(r"^file:(//(localhost)?(?=/))?(?=/)", "", path)


def _check_place(path: str, tier: str, *, permissive: bool, damage: bool) -> None:
    if tier and is_address(path):
        raise InvalidRequestError(
            "a tier is read with a store's directory or alone: a running broker reads its tier "
            "itself"
        )
    if is_address(path) and (permissive or damage):
        raise InvalidRequestError(
            "a broker gives no damaged stretches: mode=permissive and table=damage need its "
            "directory as the path"
        )


def _columns(given: _Given, *, kafka: bool) -> tuple[str, ...] | None:
    """None: all."""
    headers = given.flag("includeHeaders", default=True) if kafka else True
    columns = given.optional("columns")
    if columns is not None:
        return tuple(_words(columns))
    return None if headers else tuple(name for name in KAFKA_SCHEMA.names if name != "headers")


def _bounds(name: str, text: str) -> Bounds:
    if text.strip().lower() in ("earliest", "latest"):
        return EARLIEST if text.strip().lower() == "earliest" else LATEST
    try:
        found = {
            (topic, int(queue_id)): int(offset)
            for topic, queues in json.loads(text).items()
            for queue_id, offset in _without_broker(queues).items()
        }
    except (ValueError, AttributeError, TypeError):
        raise InvalidRequestError(
            f'{name} is earliest, latest, or JSON like {{"topic": {{"0": 23, "1": -2}}}}, '
            f"not {text!r}"
        ) from None
    if any(offset < EARLIEST for offset in found.values()):
        raise InvalidRequestError(f"{name}: an offset is 0 or more, −2 earliest or −1 latest")
    return found


def _without_broker(queues: dict[str, object]) -> dict[str, int]:
    """The old connector names brokers between topics and queues; there is one here."""
    if queues and all(isinstance(value, dict) for value in queues.values()):
        return {queue: at for one in queues.values() for queue, at in one.items()}  # type: ignore[attr-defined]
    return queues  # type: ignore[return-value]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _number(name: str, text: str | int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise InvalidRequestError(f"{name} is a number, not {text!r}") from None
    if number < 0:
        raise InvalidRequestError(f"{name} is 0 or more, not {number}")
    return number


def _delay_ms(name: str, text: str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h)\s*", text.lower())
    if found is None:
        raise InvalidRequestError(f"{name} is a time like 500ms, 30s, 15m or 1h, not {text!r}")
    return int(found[1]) * _DELAY_UNITS_MS[found[2]]


def _regular_expression(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidRequestError(
            f"subscribePattern is no regular expression: {error}: {text!r}"
        ) from error


def _optional(name: str, text: str | None) -> int | None:
    return None if text is None else _number(name, text)


def _flag(name: str, text: str) -> bool:
    _one_of(name, text.lower(), ("true", "false"))
    return text.lower() == "true"


def _one_of(name: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise InvalidRequestError(f"{name} is {' or '.join(words)}, not {word!r}")
