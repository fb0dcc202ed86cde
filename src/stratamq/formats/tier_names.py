"""Names in RocketMQ's tiered store: where a segment of a queue is in the storage.

    {cluster}/{broker}/{topic}/{queueId}/{type}/{segment}

`cluster` is the first 8 hexadecimal digits of the MD5 of its name, `_`, its name; `segment` the
first 8 of the MD5 of the base offset in decimal, then the base offset in 20 digits. Names of
segments do not sort by offset. Spec tier 3.1, 3.5.
"""

import hashlib
from enum import IntEnum

from stratamq.formats.numbers import INT64_MAX

_HASH_DIGITS = 8
_OFFSET_DIGITS = 20
SEGMENT_NAME_CHARACTERS = _HASH_DIGITS + _OFFSET_DIGITS

INDEX_TOPIC = "rmq_sys_INDEX"
"""The index of a broker is kept as segments of queue 0 of this topic."""


class SegmentType(IntEnum):
    """What a segment holds. The number is in the metadata, the name is the folder."""

    COMMIT_LOG = 0
    CONSUME_QUEUE = 1
    INDEX = 2


def cluster_folder(cluster: str) -> str:
    return f"{_hash(cluster)}_{cluster}"


def segment_name(base: int) -> str:
    """`base`: the logical offset of the segment's first byte, 0 or above."""
    return f"{_hash(str(base))}{base:0{_OFFSET_DIGITS}d}"


def parse_segment_name(name: str) -> int | None:
    """The base offset; None for a name that is no segment's."""
    digits = name[_HASH_DIGITS:]
    if len(name) != SEGMENT_NAME_CHARACTERS or not (digits.isascii() and digits.isdigit()):
        return None
    base = int(digits)
    return base if base <= INT64_MAX and segment_name(base) == name else None


def queue_path(broker: str, topic: str, queue_id: int) -> str:
    """The logical path by which the metadata names a queue."""
    return f"{broker}/{topic}/{queue_id}"


def index_path(broker: str) -> str:
    return queue_path(broker, INDEX_TOPIC, 0)


def segment_path(cluster: str, path: str, kind: SegmentType, base: int) -> str:
    """Below the root of the storage. `path`: the logical path of a queue, or of the index."""
    return f"{cluster_folder(cluster)}/{path}/{kind.name}/{segment_name(base)}"


def _hash(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
