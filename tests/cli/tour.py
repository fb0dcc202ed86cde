"""The pages that a new user follows: their commands are typed, and what is shown is compared.

A `console` block holds commands behind `$ `, continued behind `> `, and what they show. Numbers,
times, ports, widths and rules of tables may differ; a line `…` stands for any number of lines, `…`
at the end of a line for its rest. All blocks of a page run in one shell, in an empty directory.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "@@ the end of number"
RULE = re.compile(r"[\s─━┏┓┗┛┡┩┳┻┴┬└┘├┤╇┼╋]*")
FRAME = re.compile(r"[\s┃│]+")
NUMBER = re.compile(r"\d+(?:[.,:_]\d+)*")
DEFAULT_PORT = 10911
PORT = re.compile(r"\b109[1-3][0-9]\b")
"""The default ones, and those of a second broker on the machine, twenty behind them."""
DEADLINE_S = 240


@dataclass(frozen=True)
class Typed:
    """A command of a page, and what the page shows for it."""

    command: str
    shown: tuple[str, ...]


def typed(page: str) -> list[Typed]:
    found: list[Typed] = []
    for block in BLOCK.findall(page):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Typed(line.removeprefix("$ "), ()))
            elif found and line.startswith("> ") and not found[-1].shown:
                found[-1] = Typed(f"{found[-1].command}\n{line.removeprefix('> ')}", ())
            elif found:
                found[-1] = Typed(found[-1].command, (*found[-1].shown, line))
    return found


def run(
    commands: Sequence[str], directory: Path, environment: Mapping[str, str], port: int
) -> list[list[str]]:
    """What each command shows, standard error among it; `port` stands for the default one."""
    script = "".join(
        f"{_with_port(command, port)}\necho\necho '{END} {number}' $?\n"
        for number, command in enumerate(commands)
    )
    ran = subprocess.run(
        ["bash", "-c", f"exec 2>&1\n{script}"],
        cwd=directory,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    shown: list[list[str]] = [[]]
    for line in ran.stdout.splitlines():
        if line.startswith(END):
            shown.append([])
        else:
            shown[-1].append(line)
    return [_without_empty_end(lines) for lines in shown[: len(commands)]]


def _with_port(command: str, port: int) -> str:
    command = PORT.sub(lambda found: str(port + int(found[0]) - DEFAULT_PORT), command)
    if "--port" in command:
        return command
    return re.sub(r"\bstratamq up\b", f"stratamq up --port {port}", command)


def _without_empty_end(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def shape(lines: Iterable[str]) -> list[str]:
    """What must be the same each time."""
    return list(_shape(lines))


def _shape(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.strip() == "…":
            yield "…"
        elif not RULE.fullmatch(line):
            yield NUMBER.sub("0", FRAME.sub(" ", line)).strip()


def differs(expected: Sequence[str], actual: Sequence[str]) -> str:
    """ "" when what was shown has the shape that the page shows, else the first difference."""
    wanted, found = shape(expected), shape(actual)
    pattern = "\n".join(
        r"(?:[^\n]*\n)*?[^\n]*" if line == "…" else _line_pattern(line) for line in wanted
    )
    if re.fullmatch(pattern, "\n".join(found)):
        return ""
    return "the page shows\n  " + "\n  ".join(wanted) + "\nand there came\n  " + "\n  ".join(found)


def _line_pattern(line: str) -> str:
    if line.endswith("…"):
        return re.escape(line.removesuffix("…").rstrip()) + r"[^\n]*"
    return re.escape(line)
