"""Whether a log that answers is the one of this directory, by its generations.

The log service lists every generation in `stratamq/generations.json` before it serves in it, and no
two brokers invent the same number. A run file that a kill left behind may name a port on which
another broker's log listens by now; to follow that one would be to serve its messages.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.port import Files
from stratamq.formats.store_paths import GENERATIONS_PATH


def is_listed(files: Files, generation: int) -> bool:
    """Whether the log of this directory has begun that generation. A reader's look: nothing is
    changed; a list that cannot be read has none."""
    return any(number == generation for number, _ in history(files))


def end_of(files: Files, generation: int, default: int) -> int:
    """The log offset at which that generation ended, because the next one began; `default` when it
    is the last one, or not known."""
    listed = history(files)
    starts = [start for _, start in listed[1:]]
    ends = [end for (number, _), end in zip(listed, starts, strict=False) if number == generation]
    return ends[-1] if ends else default


def parted_at(listed: Sequence[tuple[int, int]], generation: int) -> int | None:
    """The log offset up to which a log of these generations, number and start, has what one had
    that was in `generation`; None: all of it, or the two have nothing in common.

    Example: [(1, 0), (5, 800)] has of generation 3, begun after 1 and lost, what is below 800.
    """
    starts = [
        start
        for (before, _), (following, start) in pairwise(listed)
        if before <= generation < following
    ]
    return starts[-1] if starts else None


def generations_document(listed: Iterable[tuple[int, int]], segment_bytes: int) -> JsonObject:
    """The file's content. `listed`: number and start, in order."""
    return {
        "segment_bytes": segment_bytes,
        "generations": [[number, start] for number, start in listed],
    }


def history(files: Files) -> list[tuple[int, int]]:
    """Number and start of each generation, in order; a list that cannot be read has none."""
    document = MetadataFile(files, GENERATIONS_PATH).load(keep_aside=False) or {}
    listed = document.get("generations")
    if not isinstance(listed, list):
        return []
    return [(entry[0], entry[1]) for entry in listed if isinstance(entry, list) and len(entry) > 1]
