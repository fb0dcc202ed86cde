"""The table of `docs/compatibility.md`: every difference from RocketMQ's answers, one row each.

The tests allow no difference that has no row there, and no row that no test meets: `Seen in` names
the openings in which a difference shows, and there it must show.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "compatibility.md"
COLUMNS = ("Row", "Lines", "Seen in", "RocketMQ", "StrataMQ", "Why")
_CELL = re.compile(r"(?<!\\)\|")
_QUOTED = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Row:
    """`seen_in` are patterns of `matches`, or names of tests (`tests/…::test_…`)."""

    name: str
    lines: tuple[str, ...]
    seen_in: tuple[str, ...]

    def openings(self) -> tuple[str, ...]:
        return tuple(one for one in self.seen_in if "::" not in one)

    def tests(self) -> tuple[str, ...]:
        return tuple(one for one in self.seen_in if "::" in one)


@cache
def rows(heading: str = "## Every difference in the answers") -> tuple[Row, ...]:
    """The rows of the table below this heading of the page."""
    found: list[Row] = []
    inside = False
    lines = PAGE.read_text().splitlines()
    for line in lines[lines.index(heading) :]:
        cells = [cell.strip() for cell in _CELL.split(line)[1:-1]]
        if tuple(cells) == COLUMNS:
            inside = True
        elif inside and not line.startswith("|"):
            break
        elif inside and not set(line) <= set("|-: "):
            name, lines, seen_in, *texts = cells
            assert all(texts), f"row {name} leaves something out"
            (quoted,) = _QUOTED.findall(name)
            found.append(Row(quoted, _quoted(lines), _quoted(seen_in)))
    assert inside, f"{PAGE} has lost its table"
    return tuple(found)


def allowed_rows(opening: str) -> set[str]:
    """The rows that an opening may show. `opening` ends in `@` and a version of RocketMQ: where
    processes are killed at any moment, what they leave is not the same each time."""
    return {row.name for row in rows() if any(matches(one, opening) for one in row.openings())}


def expected_rows(opening: str) -> set[str]:
    """The rows that an opening must show. `opening` is `store` or `store+change`."""
    return {
        row.name for row in rows() if any(matches(pattern, opening) for pattern in row.openings())
    }


def matches(pattern: str, opening: str) -> bool:
    """`*` stands for anything: `5.5.1-*+no-index`. Without `+` it is an untouched store,
    with `@` a directory of ours."""
    regex = "".join(".*" if part == "*" else re.escape(part) for part in re.split(r"(\*)", pattern))
    alike = all((mark in pattern) == (mark in opening) for mark in "+@")
    return alike and re.fullmatch(regex, opening) is not None


def _quoted(cell: str) -> tuple[str, ...]:
    return tuple(_QUOTED.findall(cell))
