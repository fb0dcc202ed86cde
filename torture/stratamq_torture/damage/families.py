"""The files of a store by what they are for, and which file of a family is damaged."""

import random
from dataclasses import dataclass
from pathlib import Path

from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq_torture.damage.kinds import Place

LOG_FAMILIES = ("first segment", "middle segment", "last segment")


@dataclass(frozen=True, slots=True)
class Family:
    """`glob` below the store's root; `pick` names which of them: first, middle, last, any."""

    name: str
    glob: str
    pick: str = "any"
    rebuildable: bool = False
    """The log has everything, so that nothing may be missing in the end."""


FAMILIES: tuple[Family, ...] = (
    Family("first segment", "commitlog/*", "first"),
    Family("middle segment", "commitlog/*", "middle"),
    Family("last segment", "commitlog/*", "last"),
    Family("queue file", "consumequeue/*/*/*", rebuildable=True),
    Family("index file", "index/*", rebuildable=True),
    Family("checkpoint", "checkpoint"),
    Family("abort", "abort"),
    Family("lock", "lock"),
    Family("topics", "config/topics.json*"),
    Family("consumer offsets", "config/consumerOffset.json*"),
    Family("checksums", "stratamq/checksums/*/*"),
    Family("generations", "stratamq/generations.json*"),
    Family("snapshot", "stratamq/queue-offsets.journal*"),
    Family("dispatcher state", "stratamq/dispatcher*.json*", rebuildable=True),
    Family("index state", "stratamq/index.json*", rebuildable=True),
    Family("geometry", "stratamq/geometry.json*", rebuildable=True),
    Family("room locks", "stratamq/*.lock"),
    Family("stray", "stray"),
    Family("directory", "directory"),
)

_STRAYS = (
    "commitlog/notes.txt",
    "commitlog/00000000000000000007",
    "consumequeue/stray",
    "consumequeue/orders/notes",
    "consumequeue/orders/0/notes.txt",
    "index/notes.txt",
    "index/20990101000000000",
    "config/notes.json",
    "stratamq/notes",
    "stratamq/tmp/notes",
    "stratamq/aside/notes",
    "stratamq/found-clean",
    "stratamq/run/commitlog.json",
    "abort",
    "notes",
)
_DIRECTORIES = (
    "commitlog",
    "consumequeue",
    "consumequeue/orders",
    "consumequeue/orders/0",
    "index",
    "config",
    "stratamq",
    "stratamq/tmp",
    "stratamq/aside",
    "stratamq/checksums",
)


def place(family: Family, root: Path, older: Path, chance: random.Random) -> Place | None:
    """One file of the family; None when the store has none. Strays are made."""
    if family.name == "stray":
        path = root / chance.choice(_STRAYS)
        if path.exists():
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(chance.choice((0, 20, 400, 16_384))))
    elif family.name == "directory":
        path = root / chance.choice(_DIRECTORIES)
        if not path.exists():
            return None
    else:
        candidates = sorted(path for path in root.glob(family.glob) if path.is_file())
        if not candidates:
            return None
        path = _pick(family, candidates, chance)
    siblings = tuple(each for each in sorted(path.parent.iterdir()) if each.is_file())
    relative = path.relative_to(root)
    neighbour = _neighbour(path, siblings, chance)
    return Place(path, older / relative, siblings, neighbour, root.with_name("outside"))


def _pick(family: Family, candidates: list[Path], chance: random.Random) -> Path:
    if family.pick == "first":
        return candidates[0]
    if family.pick == "last":
        return candidates[-1]
    if family.pick == "middle":
        return chance.choice(candidates[1:-1])
    return chance.choice(candidates)


def _neighbour(path: Path, siblings: tuple[Path, ...], chance: random.Random) -> Path:
    """The name before the first or behind the last of numbered files, else a name of a kind that
    people give to copies."""
    number = parse_offset_name(path.name)
    if number is not None and path.is_file():
        size = path.stat().st_size or 1
        known = [n for each in siblings if (n := parse_offset_name(each.name)) is not None]
        return path.with_name(offset_name(max(known) + size))
    if path.name.isdigit():
        return path.with_name(str(int(path.name) + 1))
    return path.with_name(path.name + chance.choice((".previous", ".bak", ".tmp", ".copy", "~")))
