"""The options of the data source: Kafka's names, the old rocketmq-spark connector's as aliases.

| option | default | meaning |
|---|---|---|
| `path` | | the store's directory, or an address `host:port` of a running broker's log service |
| `subscribe` (`topic`) | every topic | topics, separated by commas |
| `subscribePattern` | | a regular expression that the whole topic matches |
| `queues` | every queue | queue ids, separated by commas |
| `startingOffsets` | `earliest` | `earliest`, `latest`, or JSON `{"topic": {"0": 23, "1": -2}}` |
| `endingOffsets` | `latest` | the same; −2 is earliest, −1 latest; broker names may stand between |
| `startingTimestamp` | | milliseconds: store time at or after |
| `endingTimestamp` | | milliseconds: store time before |
| `failOnDataLoss` | `true` | whether offsets that are no longer there end the query |
| `minPartitions` | | at least so many partitions |
| `partitionBytes` | 134217728 | about so many bytes of the log a partition |
| `decompress` | `false` | bodies as producers had them |
| `verifyCrc` | `true` | hold every frame against its checksums |
| `mode` | `failfast` | `permissive` passes over damaged stretches |
| `table` | `messages` | `damage`: the damaged stretches instead, a row each |
| `includeUnqueued` | `false` | also what stands in no queue: prepared and rolled back messages |
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from stratamq.errors import InvalidRequestError
from stratamq.table.selection import Queue, Selection

EARLIEST, LATEST = -2, -1
_FOREVER = (1 << 63) - 1
ALIASES = {"topic": "subscribe", "topics": "subscribe", "paths": "path"}

Bounds = int | dict[Queue, int]
"""`EARLIEST`, `LATEST`, or a queue offset for single queues, these words among them."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Checked at once; InvalidRequestError names the option."""

    path: str
    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    queues: frozenset[int] | None = None
    starting: Bounds = EARLIEST
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
    others: dict[str, str] = field(default_factory=dict)
    """What this class does not know: of the stream and the sink."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SourceOptions":
        """From Spark's options, whose names do not tell upper from lower case."""
        given = {ALIASES.get(name.lower(), name.lower()): value for name, value in options.items()}
        take = given.pop
        path = take("path", "")
        if not path:
            raise InvalidRequestError("no path: .load(DIRECTORY) or .option('path', 'HOST:PORT')")
        topics = _words(take("subscribe", ""))
        pattern = take("subscribepattern", None)
        if topics and pattern:
            raise InvalidRequestError("subscribe and subscribePattern exclude each other")
        mode, table = take("mode", "failfast").lower(), take("table", "messages").lower()
        _one_of("mode", mode, ("failfast", "permissive"))
        _one_of("table", table, ("messages", "damage"))
        queues = _words(take("queues", ""))
        return cls(
            path=path,
            topics=frozenset(topics) or None,
            topic_pattern=pattern,
            queues=frozenset(_number("queues", word) for word in queues) or None,
            starting=_bounds("startingOffsets", take("startingoffsets", "earliest")),
            ending=_bounds("endingOffsets", take("endingoffsets", "latest")),
            since_ms=_optional("startingTimestamp", take("startingtimestamp", None)),
            until_ms=_optional("endingTimestamp", take("endingtimestamp", None)),
            fail_on_data_loss=_flag("failOnDataLoss", take("failondataloss", "true")),
            min_partitions=_number("minPartitions", take("minpartitions", "0")),
            partition_bytes=max(1, _number("partitionBytes", take("partitionbytes", 128 << 20))),
            decompress=_flag("decompress", take("decompress", "false")),
            verify=_flag("verifyCrc", take("verifycrc", "true")),
            permissive=mode == "permissive",
            damage_table=table == "damage",
            queued_only=not _flag("includeUnqueued", take("includeunqueued", "false")),
            others=given,
        )

    def selection(self) -> Selection:
        """The messages of a batch."""
        return Selection(
            topics=self.topics,
            topic_pattern=self.topic_pattern,
            queues=self.queues,
            offsets=self._single_queues(),
            all_offsets=(0, 0) if self.starting == LATEST or self.ending == EARLIEST else None,
            since_ms=self.since_ms,
            until_ms=self.until_ms,
            queued_only=self.queued_only,
        )

    def _single_queues(self) -> dict[Queue, tuple[int, int]]:
        starting = self.starting if isinstance(self.starting, dict) else {}
        ending = self.ending if isinstance(self.ending, dict) else {}
        ranges = {}
        for queue in starting.keys() | ending.keys():
            begin, end = starting.get(queue, EARLIEST), ending.get(queue, LATEST)
            if begin == LATEST or end == EARLIEST:
                ranges[queue] = (0, 0)
            else:
                ranges[queue] = (max(begin, 0), _FOREVER if end == LATEST else end)
        return ranges


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


def _optional(name: str, text: str | None) -> int | None:
    return None if text is None else _number(name, text)


def _flag(name: str, text: str) -> bool:
    _one_of(name, text.lower(), ("true", "false"))
    return text.lower() == "true"


def _one_of(name: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise InvalidRequestError(f"{name} is {' or '.join(words)}, not {word!r}")
