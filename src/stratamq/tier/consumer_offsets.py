"""Consumer groups' offsets, kept beside the queues: a broker that is restored goes on from them.

    {"format": 1, "epoch": [generation, start], "revision": 3, "storedAt": ms,
     "offsetTable": {"topic@group": {"0": 123}}}

The table is that of RocketMQ's `consumerOffset.json`.
"""

import json
from typing import Any

from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.formats.json_files import parse_json_object
from stratamq.formats.tier_manifest import FORMAT, Epoch
from stratamq.tier.containers.place import consumer_offsets_path
from stratamq.tier.driver.calls import (
    AbsentError,
    Load,
    Procedure,
    Swap,
    SwapLostError,
    Version,
    ask,
)
from stratamq.tier.writing.claim import FencedError

TABLE = "offsetTable"
_ATTEMPTS = 10

OffsetTable = dict[str, dict[str, int]]


class ConsumerOffsetsCopy:
    """What the dispatcher exports (`ExportConsumerOffsets`), gathered and stored. `epoch`: the
    writer's, from `claim`. A page at a time is taken; the object is written whole."""

    def __init__(self, cluster: str, broker: str, epoch: Epoch) -> None:
        self.changed = False
        """Something was taken that is not stored."""
        self._path = consumer_offsets_path(cluster, broker)
        self._epoch = epoch
        self._table: OffsetTable = {}
        self._version: Version | None = None
        self._revision = -1

    def take(self, document: bytes) -> None:
        """A page of the export: what it names replaces what was there, topic and group at a time.
        InvalidRequestError for what is none."""
        try:
            table = _table(parse_json_object(document))
        except CorruptRecordError as error:
            raise InvalidRequestError(f"no consumer offsets: {error.message}") from error
        for name, queues in table.items():
            if self._table.get(name, {}) != queues:
                self._table[name] = queues
                self.changed = True

    def begin_again(self) -> None:
        """The next pages are the whole table: the export has begun at its first one."""
        self.changed = self.changed or bool(self._table)
        self._table = {}

    def store(self, now_ms: int) -> Procedure[None]:
        """FencedError when a later writer has stored its own."""
        for _ in range(_ATTEMPTS):
            if self._revision < 0:
                yield from self._look()
            document = {
                "format": FORMAT,
                "epoch": list(self._epoch),
                "revision": self._revision + 1,
                "storedAt": now_ms,
                TABLE: self._table,
            }
            raw = json.dumps(document, separators=(",", ":")).encode()
            revision, self._revision = self._revision, -1
            try:
                self._version = yield from ask(Swap(self._path, raw, self._version))
            except SwapLostError:
                continue
            self._revision, self.changed = revision + 1, False
            return
        raise FencedError.of_conflicts(self._path)

    def _look(self) -> Procedure[None]:
        try:
            raw, self._version = yield from ask(Load(self._path))
        except AbsentError:
            self._version, self._revision = None, 0
            return
        document = parse_json_object(raw)
        epoch, self._revision = _head(document)
        if epoch > self._epoch:
            raise FencedError(f"{self._path} is of the writer {epoch}, this one is {self._epoch}")


def load_consumer_offsets(cluster: str, broker: str) -> Procedure[OffsetTable]:
    """Load the offsets that were stored last; empty if there are none. CorruptRecordError."""
    try:
        raw, _ = yield from ask(Load(consumer_offsets_path(cluster, broker)))
    except AbsentError:
        return {}
    document = parse_json_object(raw)
    _head(document)
    return _table(document)


def _head(document: dict[str, Any]) -> tuple[Epoch, int]:
    try:
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, and this release knows {FORMAT}")
        generation, start = document["epoch"]
        return (int(generation), int(start)), int(document["revision"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptRecordError(f"no consumer offsets: {error}", 0, "json") from error


def _table(document: dict[str, Any]) -> OffsetTable:
    try:
        return {
            str(name): {str(int(queue_id)): int(offset) for queue_id, offset in queues.items()}
            for name, queues in document[TABLE].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptRecordError(f"no consumer offsets: {error!r}", 0, "json") from error
