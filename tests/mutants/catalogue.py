"""The named mistakes: one TOML file for each room, one table for each mistake.

    folder = "tests/index"             # of the room's tests

    [[mutant]]
    name = "rewrite-without-sync"      # unique in all rooms
    claim = "A rewritten index file is on the disk before it takes the place of the old one."
    file = "services/index/stratamq_index/index_file.py"
    old = "            disk.sync()\\n"     # is in the file exactly once
    new = ""
    tests = ["test_index_file.py"]     # of the folder; the quickest that see it, first

`within` (optional) is text that is in the file once: `old` is then its first occurrence from
there on.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


class AnchorError(Exception):
    """The text that a mistake changes does not stand where it should: renew its entry."""


@dataclass(frozen=True, slots=True)
class Mutant:
    room: str
    name: str
    claim: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    within: str = ""

    def plant(self, text: str) -> str:
        """`text` with the mistake in it. AnchorError."""
        start = 0
        if self.within:
            start = text.find(self.within)
            if text.count(self.within) != 1:
                raise AnchorError(f"`within` is in {self.file} {text.count(self.within)} times")
        count = text.count(self.old, start)
        if count == 0 or (count > 1 and not self.within):
            raise AnchorError(f"`old` is in {self.file} {count} times: {self.old.strip()!r}")
        at = text.index(self.old, start)
        return text[:at] + self.new + text[at + len(self.old) :]


def load(directory: Path = HERE) -> list[Mutant]:
    """All rooms, in order. ValueError names what is wrong with an entry."""
    found: dict[str, Mutant] = {}
    for path in sorted(directory.glob("*.toml")):
        listed = tomllib.loads(path.read_text())
        for entry in listed["mutant"]:
            mutant = _mutant(path.stem, entry, listed["folder"])
            if mutant.name in found:
                raise ValueError(f"{path.name}: two mistakes are named {mutant.name}")
            found[mutant.name] = mutant
    return list(found.values())


def _mutant(room: str, entry: Mapping[str, object], folder: str) -> Mutant:
    fields = dict(entry)
    names = fields.pop("tests")
    assert isinstance(names, list)
    tests = tuple(f"{folder}/{name}" for name in names)
    try:
        mutant = Mutant(room=room, tests=tests, **fields)  # type: ignore[arg-type]
    except TypeError as error:
        raise ValueError(f"{room}.toml: {entry.get('name')}: {error}") from None
    if mutant.old == mutant.new or not mutant.old or not tests:
        raise ValueError(f"{room}.toml: {mutant.name}: it changes nothing, or no test is named")
    return mutant
