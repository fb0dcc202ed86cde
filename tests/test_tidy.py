"""What a reader may take for granted of every file in the tree."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from project_files import project_files

ROOT = Path(__file__).resolve().parent.parent
RUFF = Path(sys.executable).with_name("ruff")

PYTHON_LINES = 600
GENERATED = Path("src/stratamq/api")
# Bytes that RocketMQ wrote, and its own words about them.
FOREIGN = (Path("tests/fixtures"), Path("tests/interop/rocketmq"))
TEXT = {".py", ".pyi", ".md", ".toml", ".yaml", ".yml", ".proto", ".sh", ".java", ".xml", ""}

# Written so that they do not match themselves.
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b(?!\(#\d+\))")
MACHINE_PATH = re.compile(r"(?<![\w.])/(wor[k]|roo[t]|opt/wheel[s])/|\.librar[y]/")
PACKAGE_INDEX = re.compile(r"index-ur[l]|find-link[s]|trusted-hos[t]|mirrorO[f]")
SLEEP = re.compile(r"\btime\.slee[p]\(|from time import .*\bslee[p]\b")


def files() -> Iterator[Path]:
    """Every text file of the project that git knows or would add."""
    names = names_by_git() if shutil.which("git") and (ROOT / ".git").exists() else project_files()
    for path in sorted(map(Path, names)):
        foreign = any(path.is_relative_to(place) for place in FOREIGN)
        if path.suffix in TEXT and not foreign and (ROOT / path).is_file():
            yield path


def names_by_git() -> set[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return set(os.fsdecode(listed).split("\0")) - {""}


def test_without_git_the_same_files_are_looked_at():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("there is no git to compare with")
    assert {name for name in names_by_git() if (ROOT / name).is_file()} == set(project_files())


def found(pattern: re.Pattern[str], among: Iterator[Path]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()}"
        for path in among
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1)
        if pattern.search(line)
    ]


def parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(), filename=str(path))


def test_what_is_unfinished_names_its_issue():
    assert found(UNFINISHED, files()) == []


def test_no_file_names_a_path_of_some_machine():
    assert found(MACHINE_PATH, files()) == []


def test_no_file_names_a_package_index():
    assert found(PACKAGE_INDEX, files()) == []


def test_no_code_sleeps_as_synchronisation():
    places = ("src", "services", "tests")
    clock = Path("src/stratamq/files/clock.py")
    among = (path for path in files() if path.parts[0] in places and path != clock)
    assert found(SLEEP, among) == []


def test_no_python_file_is_longer_than_one_idea():
    lengths = {
        path: len((ROOT / path).read_text().splitlines())
        for path in files()
        if path.suffix == ".py" and not path.is_relative_to(GENERATED)
    }
    assert {path: lines for path, lines in lengths.items() if lines > PYTHON_LINES} == {}


def test_every_module_has_a_docstring():
    modules = (
        path
        for path in files()
        if path.suffix == ".py"
        and path.name != "__init__.py"
        and not path.is_relative_to(GENERATED)
    )
    silent = [path for path in modules if not ast.get_docstring(parsed(path))]
    assert silent == []


def test_text_ends_with_one_newline_and_holds_no_carriage_return():
    untidy = []
    for path in files():
        data = (ROOT / path).read_bytes()
        if data and (not data.endswith(b"\n") or data.endswith(b"\n\n") or b"\r" in data):
            untidy.append(path)
    assert untidy == []


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=["check", "format"])
def test_ruff_has_no_complaint(command):
    done = subprocess.run([RUFF, *command, "."], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("pattern", "bad", "good"),
    [
        (UNFINISHED, "# TO" + "DO: later", "# TO" + "DO(#12): later"),
        (MACHINE_PATH, "cd /wor" + "k/main", "tests/wor" + "k/main"),
        (PACKAGE_INDEX, "--index-" + "url=x", "the index url"),
        (SLEEP, "    time.sle" + "ep(1)", "asyncio.sleep(0)"),
    ],
)
def test_the_patterns_bite(pattern, bad, good):
    assert pattern.search(bad)
    assert not pattern.search(good)
