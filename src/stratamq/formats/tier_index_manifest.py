"""The manifest of a broker's key index: which files there are, and what is in them. JSON.

    {"format": 1, "cluster", "broker", "revision": 12, "epoch": [generation, start],
     "end": 4096, "files": [[base, size, slots, items, begin, first, last, name]…],
     "topics": {"orders": 0}, "covered": {"orders": {"0": 500}}, "dropped": [[path, at]…]}

A file is one of `tier_index`, uploaded; `begin` is the time in its header, `first` and `last` are
the lowest and highest store time of its items, in ms. `topics` are the topic ids in its items.
`covered`: every key of messages below this queue offset is in some file. `end`: the next file has
no lower base, so that no name of a file is used again.
"""

import json
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from stratamq.errors import CorruptRecordError
from stratamq.formats.tier_manifest import FORMAT, Dropped, Epoch

QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """`base`: not below the end of the file before; `name`: the object's path."""

    base: int
    size: int
    slots: int
    items: int
    begin_ms: int
    first_ms: int
    last_ms: int
    name: str

    @property
    def end(self) -> int:
        return self.base + self.size


_file_row = attrgetter(*(one.name for one in fields(IndexedFile)))


@dataclass(frozen=True, slots=True)
class IndexManifest:
    cluster: str
    broker: str
    revision: int
    epoch: Epoch
    end: int = 0
    files: tuple[IndexedFile, ...] = ()
    topics: dict[str, int] = field(default_factory=dict)
    covered: dict[QueueKey, int] = field(default_factory=dict)
    dropped: tuple[Dropped, ...] = ()


def encode_index_manifest(manifest: IndexManifest) -> bytes:
    covered: dict[str, dict[str, int]] = {}
    for (topic, queue_id), end in manifest.covered.items():
        covered.setdefault(topic, {})[str(queue_id)] = end
    document = {
        "format": FORMAT,
        "cluster": manifest.cluster,
        "broker": manifest.broker,
        "revision": manifest.revision,
        "epoch": list(manifest.epoch),
        "end": manifest.end,
        "files": [_file_row(file) for file in manifest.files],
        "topics": manifest.topics,
        "covered": covered,
        "dropped": [[dropped.path, dropped.since_ms] for dropped in manifest.dropped],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_index_manifest(raw: bytes) -> IndexManifest:
    """CorruptRecordError (reason `json`) for what is none, or is of a later format."""
    try:
        document = json.loads(raw)
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']}, and this release knows {FORMAT}")
        generation, start = document["epoch"]
        return IndexManifest(
            str(document["cluster"]),
            str(document["broker"]),
            int(document["revision"]),
            (int(generation), int(start)),
            int(document["end"]),
            tuple(_file(row) for row in document["files"]),
            {str(topic): int(number) for topic, number in document["topics"].items()},
            {
                (str(topic), int(queue_id)): int(end)
                for topic, queues in document["covered"].items()
                for queue_id, end in queues.items()
            },
            tuple(Dropped(str(path), int(since)) for path, since in document["dropped"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptRecordError(f"no manifest of an index: {error}", 0, "json") from error


def _file(row: list[Any]) -> IndexedFile:
    *numbers, name = row
    base, size, slots, items, begin_ms, first_ms, last_ms = map(int, numbers)
    return IndexedFile(base, size, slots, items, begin_ms, first_ms, last_ms, str(name))
