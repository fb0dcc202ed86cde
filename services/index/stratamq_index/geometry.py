"""How many slots and items an index file has: its bytes do not record it.

Candidates, in this order: the settings, what was used here before (`stratamq/geometry.json`),
RocketMQ's defaults, what the files themselves show (`directory.infer`). A candidate is taken when
files have its length and their newest items hang in the slots of their hashes. Our own record needs
the length only: after a crash the slots of our current file may not have reached the disk.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from stratamq.formats.index_layout import DEFAULT_ITEMS, DEFAULT_SLOTS, index_file_bytes
from stratamq.formats.numbers import INT32_MAX

MAX_FILE_BYTES = INT32_MAX
"""RocketMQ maps a file with a 32-bit length."""


@dataclass(frozen=True, slots=True)
class FileGeometry:
    slots: int
    items: int

    @property
    def file_bytes(self) -> int:
        return index_file_bytes(self.slots, self.items)

    @property
    def is_possible(self) -> bool:
        return self.slots >= 1 and self.items >= 2 and self.file_bytes <= MAX_FILE_BYTES

    def __str__(self) -> str:
        return f"{self.slots} slots and {self.items} items"


DEFAULT_GEOMETRY = FileGeometry(DEFAULT_SLOTS, DEFAULT_ITEMS)


class Fit(enum.Enum):
    """How the existing files fit a candidate."""

    ITEMS = "files have this length, and their items the right slots"
    LENGTH = "files have this length, and no items as evidence"
    NONE = "no file has this length, or the items are in other slots"


@dataclass(frozen=True, slots=True)
class GeometryChoice:
    geometry: FileGeometry
    report: tuple[str, ...] = ()
    fits: bool = True
    """False: there are files, and nothing fits them; they go aside and are built again."""


def choose(
    slots: int | None,
    items: int | None,
    recorded: FileGeometry | None,
    look: Callable[[FileGeometry], Fit] | None,
    infer: Callable[[], FileGeometry | None],
) -> GeometryChoice:
    """`slots` and `items` are the settings; `look` judges a candidate, None when no file is there;
    `infer` is asked when no candidate fits."""
    base = recorded or DEFAULT_GEOMETRY
    configured = None
    if slots is not None or items is not None:
        configured = FileGeometry(slots or base.slots, items or base.items)
    candidates = [c for c in (configured, recorded, DEFAULT_GEOMETRY) if c and c.is_possible]
    if look is None:
        return GeometryChoice(candidates[0])
    fits = {candidate: look(candidate) for candidate in candidates}
    chosen = next(
        (
            candidate
            for candidate in candidates
            if fits[candidate] is Fit.ITEMS
            or (candidate == recorded and fits[candidate] is Fit.LENGTH)
        ),
        None,
    )
    if chosen is None:
        by_length = next((c for c in candidates if fits[c] is Fit.LENGTH), None)
        chosen = by_length or recorded or infer()
    if chosen is None:
        fault = "the files in index/ have neither the slots and items of the settings nor others "
        fault += "that they show: they are set aside, and the index is built from the log"
        return GeometryChoice(candidates[0], (fault,), fits=False)
    report: tuple[str, ...] = ()
    if configured is not None and configured != chosen:
        report = (f"settings of {configured} do not fit the files in index/: {chosen} do",)
    return GeometryChoice(chosen, report)
