"""Minimum offsets of a topic's queues, in the topic's entry of `config/topics.json`.

    "stratamqMinimumOffsets": {"0": 17, "3": 5}

A consumer of queue 0 gets nothing below queue offset 17, whatever the log holds. RocketMQ passes
the member over, and leaves it out when it writes the file itself. So with

    "stratamqDeleted": true

of a topic that was deleted, whose "perm" is 0.
"""

from collections.abc import Iterable

MEMBER = "stratamqMinimumOffsets"
DELETED = "stratamqDeleted"
Minimums = tuple[tuple[int, int], ...]
"""(queue id, minimum queue offset above 0), by queue id."""


def minimums_of(entry: object) -> Minimums:
    """Read the minimums from an entry of the table of topics. Values that are not minimums are
    ignored."""
    found = entry.get(MEMBER) if isinstance(entry, dict) else None
    if not isinstance(found, dict):
        return ()
    return ordered(
        (int(queue_id), offset)
        for queue_id, offset in found.items()
        if _is_queue_id(queue_id) and isinstance(offset, int) and not isinstance(offset, bool)
    )


def ordered(minimums: Iterable[tuple[int, int]]) -> Minimums:
    return tuple(sorted((queue_id, offset) for queue_id, offset in minimums if offset > 0))


def members_of(minimums: Minimums) -> dict[str, object]:
    """What the entry has of them: nothing, or one member."""
    if not minimums:
        return {}
    return {MEMBER: {str(queue_id): offset for queue_id, offset in minimums}}


def _is_queue_id(text: object) -> bool:
    return isinstance(text, (str, int)) and str(text).isascii() and str(text).isdigit()
