"""Check the words that people read: docstrings, comments, messages, pages and class names.

A folder must be free of the faults below, unless `OPEN` allows it some. That number may only fall.

    scripts/check_words.py            print the faults of each folder; fail where there are too many
    scripts/check_words.py PATH ...   print every fault under these paths
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from project_files import project_files

ROOT = Path(__file__).resolve().parent.parent

# Tests may use any word; generated files are corrected in their sources.
IGNORED = (
    "tests/",
    "src/stratamq/api/",
    "src/stratamq/client/_sync/",
    "scripts/check_words.py",
    "LICENSE",
)
GENERATED_PAGES = ("docs/cli.md", "docs/rpcs.md", "docs/metrics.md", "docs/alarms.md")
SUFFIXES = {".py", ".md", ".proto", ".sh", ".toml", ".yaml", ".yml", ".svg", ""}

BANNED = re.compile(
    r"\b(?:nobody|somebody|anybody|whoever|whomever|whom|anew|hindered|may what|of now on)\b"
    r"|\b(?:held against|for ever|as often as needed)\b"
    r"|\b(?:counts? for nothing|made if|kept out|tak(?:ing|en) back)\b"
    r'|"and exit\b|(?-i:\b_?MOST_[A-Z]+)',
    re.IGNORECASE,
)
FRAGMENT = re.compile(r"\s*(?:Of|As)\s")
# Code in pages, and what `make docs` puts between its markers.
PAGE_EXCEPTIONS = re.compile(r"`[^`\n]*`|^<!-- generated.*?begin -->$.*?end -->$", re.DOTALL | re.M)

# How many faults a folder still has. Lower the number with each correction.
# The Makefile chooses tests by a word of their names; replication names a verdict.
OPEN = {".": 1, "services/ha": 1}

# Classes that share a public name on purpose, and why.
SHARED_NAMES: dict[str, str] = {
    "EngineSettings": "each engine takes its own from its service",
    "GroupMember": "the dispatcher's value and the client's: services do not import the client",
    "GroupQueue": "the dispatcher's value and the client's: services do not import the client",
    "Observer": "each service has one, in its metrics module",
}
SHIPPED = ("src/", "services/", "pipeline/")


@dataclass(frozen=True, slots=True)
class Fault:
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def main() -> int:
    paths = [path for path in project_files() if checked(path)]
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    faults = [fault for path, text in texts.items() for fault in faults_of(path, text)]
    if sys.argv[1:]:
        for fault in faults:
            if fault.path.startswith(tuple(sys.argv[1:])):
                print(fault)
        return 0
    return max(report_folders(faults), report_names(shared_names(texts)))


def checked(path: str) -> bool:
    return (
        Path(path).suffix in SUFFIXES
        and not path.startswith(IGNORED)
        and path not in GENERATED_PAGES
    )


def faults_of(path: str, text: str) -> Iterator[Fault]:
    prose = PAGE_EXCEPTIONS.sub(blank, text) if path.endswith(".md") else text
    for match in BANNED.finditer(prose):
        yield Fault(path, prose.count("\n", 0, match.start()) + 1, f"banned word: {match[0]}")
    if path.endswith(".py"):
        # Every string that is a statement documents something: a class, a function, an attribute.
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Expr(ast.Constant(str(docstring))) if FRAGMENT.match(docstring):
                    first = docstring.strip().splitlines()[0]
                    yield Fault(path, node.lineno, f"docstring is no sentence: {first}")


def blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def folder_of(path: str) -> str:
    """Name the part of the tree that `OPEN` counts: a package, a service, or a top folder."""
    parts = Path(path).parts
    if len(parts) == 1:
        return "."
    deep = {"src": 3, "services": 2, "docs": 2}.get(parts[0], 1)
    return "/".join(parts[: min(deep, len(parts) - 1)])


def report_folders(faults: list[Fault]) -> int:
    banned = Counter(folder_of(fault.path) for fault in faults if "banned" in fault.text)
    fragments = Counter(folder_of(fault.path) for fault in faults if "banned" not in fault.text)
    failed = 0
    print(f"{'folder':28}{'banned words':>14}{'fragments':>12}{'allowed':>10}")
    for folder in sorted(set(banned) | set(fragments) | set(OPEN)):
        count, allowed = banned[folder] + fragments[folder], OPEN.get(folder, 0)
        failed |= count > allowed
        mark = "  too many" if count > allowed else "  lower it" if count < allowed else ""
        print(f"{folder:28}{banned[folder]:>14}{fragments[folder]:>12}{allowed:>10}{mark}")
    print(f"{'all':28}{banned.total():>14}{fragments.total():>12}")
    if failed:
        print("check_words: `scripts/check_words.py PATH` prints each fault", file=sys.stderr)
    return int(failed)


def shared_names(texts: dict[str, str]) -> dict[str, list[str]]:
    """Find the public names that stand for several classes of what ships; return their files."""
    places = defaultdict(list)
    for path, text in texts.items():
        if path.endswith(".py") and path.startswith(SHIPPED):
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(path)
    return {name: files for name, files in sorted(places.items()) if len(files) > 1}


def report_names(shared: dict[str, list[str]]) -> int:
    unexplained = {name: files for name, files in shared.items() if name not in SHARED_NAMES}
    classes = sum(map(len, shared.values()))
    print(f"{len(shared)} public names stand for {classes} classes, {len(unexplained)} unexplained")
    for name, files in unexplained.items():
        print(f"check_words: {name} is the name of several classes: {', '.join(files)}")
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
