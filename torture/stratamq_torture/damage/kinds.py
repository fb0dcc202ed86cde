"""What can happen to which files: the families of a store's files by what they are for, and each
kind of damage as a function of a path and chance.

A kind answers with a sentence about what it did, or with None when it does not apply to what is
there (an empty file has no bit to flip).
"""

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

from stratamq.formats.file_names import offset_name, parse_offset_name

SECTOR_BYTES, PAGE_BYTES = 512, 4096


@dataclass(frozen=True, slots=True)
class Place:
    """One file that is to be damaged, and what could be put in its place."""

    path: Path
    older: Path
    """Its older version; need not be there."""
    siblings: tuple[Path, ...]
    """Other files of the family."""
    neighbour: Path
    """A name that the family could use and does not."""
    outside: Path
    """A path that is not in the store."""


LOG_FAMILIES = ("first segment", "middle segment", "last segment")


@dataclass(frozen=True, slots=True)
class Family:
    """`glob` below the store's root; `pick` names which of them: first, middle, last, any."""

    name: str
    glob: str
    pick: str = "any"


FAMILIES: tuple[Family, ...] = (
    Family("first segment", "commitlog/*", "first"),
    Family("middle segment", "commitlog/*", "middle"),
    Family("last segment", "commitlog/*", "last"),
    Family("queue file", "consumequeue/*/*/*"),
    Family("index file", "index/*"),
    Family("checkpoint", "checkpoint"),
    Family("abort", "abort"),
    Family("lock", "lock"),
    Family("topics", "config/topics.json*"),
    Family("consumer offsets", "config/consumerOffset.json*"),
    Family("checksums", "stratamq/checksums/*/*"),
    Family("generations", "stratamq/generations.json*"),
    Family("snapshot", "stratamq/queue-offsets.journal*"),
    Family("dispatcher state", "stratamq/dispatcher*.json*"),
    Family("index state", "stratamq/index.json*"),
    Family("geometry", "stratamq/geometry.json*"),
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


Kind = Callable[[Place, random.Random], str | None]
KINDS: list[Kind] = []


def kind(least: int | None) -> Callable[[Kind], Kind]:
    """It applies to a regular file of so many bytes at least; None: to whatever is there."""

    def registered(function: Kind) -> Kind:
        @wraps(function)
        def applied(place: Place, chance: random.Random) -> str | None:
            size = _size(place.path)
            fits = least is None or (size is not None and size >= least)
            return function(place, chance) if fits else None

        KINDS.append(applied)
        return applied

    return registered


@kind(1)
def flip_bit(place: Place, chance: random.Random) -> str:
    at, bit = chance.randrange(_used(place.path) or _bytes(place)), chance.randrange(8)
    return _flip(place, at, bit)


@kind(1)
def flip_bit_anywhere(place: Place, chance: random.Random) -> str:
    """Also where nothing was ever written."""
    return _flip(place, chance.randrange(_bytes(place)), 4)


@kind(1)
def flip_and_zero_end(place: Place, chance: random.Random) -> str | None:
    """In two places: where the end is determined, and before it."""
    used = _used(place.path)
    if used < 100:
        return None
    flipped = _flip(place, chance.randrange(used - 50), 2)
    with place.path.open("r+b") as file:
        file.seek(used - 40)
        file.write(bytes(40))
    return f"{flipped}, and the last 40 bytes before {used} are zero"


@kind(1)
def zero_sector(place: Place, chance: random.Random) -> str | None:
    return _overwrite(place, chance, SECTOR_BYTES, zeros=True)


@kind(1)
def zero_page(place: Place, chance: random.Random) -> str | None:
    return _overwrite(place, chance, PAGE_BYTES, zeros=True)


@kind(1)
def garbage_sector(place: Place, chance: random.Random) -> str | None:
    return _overwrite(place, chance, SECTOR_BYTES, zeros=False)


@kind(1)
def zero_all(place: Place, chance: random.Random) -> str:
    place.path.write_bytes(bytes(_bytes(place)))
    return "all of it is zero"


@kind(0)
def garbage_all(place: Place, chance: random.Random) -> str:
    place.path.write_bytes(chance.randbytes(_bytes(place) or 100))
    return "all of it is garbage"


@kind(1)
def truncate(place: Place, chance: random.Random) -> str:
    size = _bytes(place)
    kept = chance.randrange(size)
    os.truncate(place.path, kept)
    return f"cut off at byte {kept} of {size}"


@kind(0)
def extend(place: Place, chance: random.Random) -> str:
    more = chance.choice((1, 8, 20, 512, 4096))
    with place.path.open("ab") as file:
        file.write(chance.randbytes(more) if chance.random() < 0.5 else bytes(more))
    return f"{more} bytes longer"


@kind(1)
def empty(place: Place, chance: random.Random) -> str:
    os.truncate(place.path, 0)
    return "empty"


@kind(0)
def older_version(place: Place, chance: random.Random) -> str | None:
    if _size(place.older) is None or place.older.read_bytes() == place.path.read_bytes():
        return None
    place.path.write_bytes(place.older.read_bytes())
    return "an older version of itself"


@kind(0)
def sibling(place: Place, chance: random.Random) -> str | None:
    files = [path for path in place.siblings if _size(path) is not None and path != place.path]
    if not files:
        return None
    other = chance.choice(files)
    place.path.write_bytes(other.read_bytes())
    return f"the content of {other.name}"


@kind(0)
def duplicate(place: Place, chance: random.Random) -> str | None:
    """The file stays, and is under another name as well."""
    if os.path.lexists(place.neighbour):
        return None
    shutil.copyfile(place.path, place.neighbour)
    return f"a copy of it is at {place.neighbour.name}"


@kind(None)
def renamed(place: Place, chance: random.Random) -> str | None:
    if not os.path.lexists(place.path) or os.path.lexists(place.neighbour):
        return None
    place.path.rename(place.neighbour)
    return f"it is at {place.neighbour.name} instead"


@kind(None)
def delete(place: Place, chance: random.Random) -> str | None:
    if not os.path.lexists(place.path):
        return None
    _remove(place.path)
    return "deleted"


@kind(None)
def directory(place: Place, chance: random.Random) -> str:
    _remove(place.path)
    place.path.mkdir()
    if chance.random() < 0.5:
        (place.path / "something").write_bytes(b"in it")
    return "a directory"


@kind(None)
def dangling_link(place: Place, chance: random.Random) -> str:
    return _link(place, "there-is-nothing-here")


@kind(None)
def link_to_itself(place: Place, chance: random.Random) -> str:
    return _link(place, place.path.name)


@kind(0)
def link_outside(place: Place, chance: random.Random) -> str:
    """The same content, but somewhere else."""
    shutil.copyfile(place.path, place.outside)
    return _link(place, str(place.outside))


@kind(None)
def fifo(place: Place, chance: random.Random) -> str:
    """Opening it for reading blocks forever, unless with O_NONBLOCK."""
    _remove(place.path)
    os.mkfifo(place.path)
    return "a FIFO"


def name_of(kind: Kind) -> str:
    return kind.__name__.replace("_", " ")


# --- inside ---


def _size(path: Path) -> int | None:
    """Bytes of a regular file; None for everything else."""
    return path.stat().st_size if path.is_file() and not path.is_symlink() else None


def _bytes(place: Place) -> int:
    return place.path.stat().st_size


def _flip(place: Place, at: int, bit: int) -> str:
    with place.path.open("r+b") as file:
        file.seek(at)
        value = file.read(1)[0]
        file.seek(at)
        file.write(bytes([value ^ (1 << bit)]))
    return f"bit {bit} of byte {at} is flipped"


def _used(path: Path) -> int:
    """Behind the last byte that is not zero."""
    return len(path.read_bytes().rstrip(b"\0"))


def _overwrite(place: Place, chance: random.Random, unit: int, *, zeros: bool) -> str | None:
    # Where something was written: elsewhere zeros change nothing.
    units = max(1, -(-_used(place.path) // unit))
    at = chance.randrange(units) * unit
    length = min(unit, _bytes(place) - at)
    with place.path.open("r+b") as file:
        file.seek(at)
        before = file.read(length)
        content = bytes(length) if zeros else chance.randbytes(length)
        file.seek(at)
        file.write(content)
    if content == before:
        return None
    return f"bytes {at} to {at + length} are {'zero' if zeros else 'garbage'}"


def _link(place: Place, target: str) -> str:
    _remove(place.path)
    place.path.symlink_to(target)
    return f"a link to {target}"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
