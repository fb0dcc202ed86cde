"""What can happen to a file: each kind of damage as a function of a path and chance.

A kind answers with a sentence about what it did, or with None when it does not apply to what
is there (an empty file has no bit to flip).
"""

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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


Kind = Callable[[Place, random.Random], str | None]


def flip_bit(place: Place, chance: random.Random) -> str | None:
    size = _size(place.path)
    if not size:
        return None
    at, bit = chance.randrange(_used(place.path) or size), chance.randrange(8)
    with place.path.open("r+b") as file:
        file.seek(at)
        value = file.read(1)[0]
        file.seek(at)
        file.write(bytes([value ^ (1 << bit)]))
    return f"bit {bit} of byte {at} is flipped"


def flip_bit_anywhere(place: Place, chance: random.Random) -> str | None:
    """Also where nothing was ever written."""
    size = _size(place.path)
    if not size:
        return None
    at = chance.randrange(size)
    with place.path.open("r+b") as file:
        file.seek(at)
        value = file.read(1)[0]
        file.seek(at)
        file.write(bytes([value ^ 0x10]))
    return f"bit 4 of byte {at} is flipped"


def flip_and_zero_end(place: Place, chance: random.Random) -> str | None:
    """In two places: where the end is determined, and before it."""
    used = _used(place.path) if _size(place.path) else 0
    if used < 100:
        return None
    at = chance.randrange(used - 50)
    with place.path.open("r+b") as file:
        file.seek(at)
        value = file.read(1)[0]
        file.seek(at)
        file.write(bytes([value ^ 0x04]))
        file.seek(used - 40)
        file.write(bytes(40))
    return f"bit 2 of byte {at} is flipped, and the last 40 bytes before {used} are zero"


def zero_sector(place: Place, chance: random.Random) -> str | None:
    return _overwrite(place, chance, SECTOR_BYTES, zeros=True)


def zero_page(place: Place, chance: random.Random) -> str | None:
    return _overwrite(place, chance, PAGE_BYTES, zeros=True)


def garbage_sector(place: Place, chance: random.Random) -> str | None:
    return _overwrite(place, chance, SECTOR_BYTES, zeros=False)


def zero_all(place: Place, chance: random.Random) -> str | None:
    size = _size(place.path)
    if not size:
        return None
    _rewrite(place.path, bytes(size))
    return "all of it is zero"


def garbage_all(place: Place, chance: random.Random) -> str | None:
    size = _size(place.path)
    if size is None:
        return None
    _rewrite(place.path, chance.randbytes(size or 100))
    return "all of it is garbage"


def truncate(place: Place, chance: random.Random) -> str | None:
    size = _size(place.path)
    if not size:
        return None
    kept = chance.randrange(size)
    os.truncate(place.path, kept)
    return f"cut off at byte {kept} of {size}"


def extend(place: Place, chance: random.Random) -> str | None:
    if _size(place.path) is None:
        return None
    more = chance.choice((1, 8, 20, 512, 4096))
    with place.path.open("ab") as file:
        file.write(chance.randbytes(more) if chance.random() < 0.5 else bytes(more))
    return f"{more} bytes longer"


def empty(place: Place, chance: random.Random) -> str | None:
    if not _size(place.path):
        return None
    os.truncate(place.path, 0)
    return "empty"


def older_version(place: Place, chance: random.Random) -> str | None:
    if _size(place.older) is None or _size(place.path) is None:
        return None
    content = place.older.read_bytes()
    if content == place.path.read_bytes():
        return None
    _rewrite(place.path, content)
    return "an older version of itself"


def sibling(place: Place, chance: random.Random) -> str | None:
    files = [path for path in place.siblings if _size(path) is not None and path != place.path]
    if not files or _size(place.path) is None:
        return None
    other = chance.choice(files)
    _rewrite(place.path, other.read_bytes())
    return f"the content of {other.name}"


def duplicate(place: Place, chance: random.Random) -> str | None:
    """The file stays, and is under another name as well."""
    if _size(place.path) is None or os.path.lexists(place.neighbour):
        return None
    shutil.copyfile(place.path, place.neighbour)
    return f"a copy of it is at {place.neighbour.name}"


def renamed(place: Place, chance: random.Random) -> str | None:
    if not os.path.lexists(place.path) or os.path.lexists(place.neighbour):
        return None
    place.path.rename(place.neighbour)
    return f"it is at {place.neighbour.name} instead"


def delete(place: Place, chance: random.Random) -> str | None:
    if not os.path.lexists(place.path):
        return None
    _remove(place.path)
    return "deleted"


def directory(place: Place, chance: random.Random) -> str | None:
    _remove(place.path)
    place.path.mkdir()
    if chance.random() < 0.5:
        (place.path / "something").write_bytes(b"in it")
    return "a directory"


def dangling_link(place: Place, chance: random.Random) -> str | None:
    return _link(place, "there-is-nothing-here")


def link_to_itself(place: Place, chance: random.Random) -> str | None:
    return _link(place, place.path.name)


def link_outside(place: Place, chance: random.Random) -> str | None:
    """The same content, but somewhere else."""
    if _size(place.path) is None:
        return None
    shutil.copyfile(place.path, place.outside)
    return _link(place, str(place.outside))


def fifo(place: Place, chance: random.Random) -> str | None:
    """Opening it for reading blocks for ever, unless with O_NONBLOCK."""
    _remove(place.path)
    os.mkfifo(place.path)
    return "a FIFO"


KINDS: tuple[Kind, ...] = (
    flip_bit,
    flip_bit_anywhere,
    flip_and_zero_end,
    zero_sector,
    zero_page,
    garbage_sector,
    zero_all,
    garbage_all,
    truncate,
    extend,
    empty,
    older_version,
    sibling,
    duplicate,
    renamed,
    delete,
    directory,
    dangling_link,
    link_to_itself,
    link_outside,
    fifo,
)


def name_of(kind: Kind) -> str:
    return kind.__name__.replace("_", " ")


# --- inside ---


def _size(path: Path) -> int | None:
    """Bytes of a regular file; None for everything else."""
    return path.stat().st_size if path.is_file() and not path.is_symlink() else None


def _used(path: Path) -> int:
    """Behind the last byte that is not zero."""
    return len(path.read_bytes().rstrip(b"\0"))


def _overwrite(place: Place, chance: random.Random, unit: int, *, zeros: bool) -> str | None:
    size = _size(place.path)
    if not size:
        return None
    # Where something was written: elsewhere zeros change nothing.
    units = max(1, -(-_used(place.path) // unit))
    at = chance.randrange(units) * unit
    length = min(unit, size - at)
    with place.path.open("r+b") as file:
        file.seek(at)
        before = file.read(length)
        content = bytes(length) if zeros else chance.randbytes(length)
        file.seek(at)
        file.write(content)
    if content == before:
        return None
    return f"bytes {at} to {at + length} are {'zero' if zeros else 'garbage'}"


def _rewrite(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _link(place: Place, target: str) -> str:
    _remove(place.path)
    place.path.symlink_to(target)
    return f"a link to {target}"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
