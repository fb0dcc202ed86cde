"""What a queue of the tier lacks before the message that it goes on with."""

from collections.abc import Callable

from stratamq.formats.tier_manifest import Hole, Manifest
from stratamq.tier.containers.place import QueuePlace

Gaps = Callable[[QueuePlace, Manifest | None, int, int], tuple[Hole, ...]]
"""Takes place, manifest (None: the queue begins), the queue offset at which it goes on, and the
time in ms; gives the holes before that offset."""


def recorded(
    place: QueuePlace, manifest: Manifest | None, end: int, now_ms: int
) -> tuple[Hole, ...]:
    """The log had no more what is not there."""
    return () if manifest is None else (Hole(manifest.end_offset, end, now_ms),)


def begins_here(manifest: Manifest | None) -> bool:
    """Whether the queue begins where its next message is: it has none, or was cut to its first
    offset."""
    return manifest is None or not manifest.records or not manifest.end_offset


def holes_before(
    gaps: Gaps, place: QueuePlace, manifest: Manifest | None, end: int, now_ms: int
) -> tuple[Hole, ...]:
    """What is missing of the queue before queue offset `end`."""
    known = manifest if manifest is not None and manifest.records else None
    if known is not None and end <= known.end_offset:
        return ()
    holes = gaps(place, known, end, now_ms)
    return tuple(one for one in holes if one.lost) if begins_here(manifest) else holes
