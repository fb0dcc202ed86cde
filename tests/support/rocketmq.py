"""The real RocketMQ, run by the harness in `tests/interop/rocketmq`; its README has the commands.

Needs Java 17 and Maven; tests that use it carry the marker `java`. Each version is built once, by
whichever test process comes first.
"""

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.fixtures import Geometry
from tests.support.java import QUICK_START

HARNESS = Path(__file__).parent.parent / "interop" / "rocketmq"
VERSIONS = ("4.9.8", "5.5.1")
_DEADLINE_S = 240
_NO_COMMAND = 2
_REFUSED = 3
_SHARED_INDEX_FILE = 4
_RUNS = 8

Line = dict[str, Any]
Option = str | int | bool


class RocketMQFailedError(AssertionError):
    """The harness ended otherwise than it should; the sentence holds what it wrote."""


def geometry_file(root: Path, geometry: Geometry) -> None:
    """Write the file sizes of a store to where the harness reads them."""
    (root / "geometry.properties").write_text(
        f"log-bytes={geometry.log_bytes}\nqueue-units={geometry.queue_units}\n"
        f"slots={geometry.slots}\nitems={geometry.items}\n"
    )


def dump(version: str, root: Path, scratch: Path, **options: Option) -> list[Line]:
    """What RocketMQ reports of a copy of the directory, after loading, recovery and dispatch.

    Index files are named by the millisecond: where RocketMQ filled two within one, and so lost the
    first one's keys, which small files make likely, it is run again.
    """
    return list(_lines(version, scratch, "dump", str(root), *_words(options)))


def write(version: str, root: Path, scratch: Path, **options: Option) -> list[Line]:
    """Let RocketMQ put a seeded workload into the directory; the results of the puts."""
    return list(_lines(version, scratch, "write", str(root), *_words(options)))


class Running:
    """A command of the harness that runs beside the test; `lines` is its output so far."""

    def __init__(self, version: str, scratch: Path, *words: str, **options: Option) -> None:
        _build(version)
        scratch.mkdir(parents=True, exist_ok=True)
        self._out = scratch / "lines.jsonl"
        self._errors = scratch / "errors.txt"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [HARNESS / "run", *words, *_words(options), "--out", str(self._out)],
                env=_environment(version, scratch),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def lines(self) -> list[Line]:
        text = self._out.read_text(encoding="ascii") if self._out.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def finish(self) -> list[Line]:
        """Wait until it ends by itself; returns all its output."""
        code = self._process.wait(_DEADLINE_S)
        if code:
            written = self._errors.read_text(errors="replace")[-4000:]
            raise RocketMQFailedError(f"RocketMQ ended with {code}\n{written}")
        return self.lines()

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _words(options: dict[str, Option]) -> Iterator[str]:
    """`lose_after=3, crash=True` as `--lose-after 3 --crash`."""
    for name, value in options.items():
        yield "--" + name.replace("_", "-")
        if value is not True:
            yield str(value)


def _lines(version: str, scratch: Path, *words: str) -> Iterator[Line]:
    _build(version)
    scratch.mkdir(parents=True, exist_ok=True)
    out = scratch / "lines.jsonl"
    for _ in range(_RUNS):
        done = _run(version, [*words, "--out", str(out)], scratch)
        if done.returncode != _SHARED_INDEX_FILE:
            break
    if done.returncode:
        refused = " (the store refused to load)" if done.returncode == _REFUSED else ""
        raise RocketMQFailedError(
            f"RocketMQ {version}: {' '.join(words)} ended with {done.returncode}{refused}\n"
            f"{done.stderr[-4000:]}"
        )
    with out.open(encoding="ascii") as lines:
        for line in lines:
            yield json.loads(line)


@cache
def _build(version: str) -> None:
    target = HARNESS / "target"
    target.mkdir(exist_ok=True)
    with (target / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = _run(version, [], target)
    if done.returncode != _NO_COMMAND:
        raise RocketMQFailedError(f"RocketMQ {version} cannot be built:\n{done.stderr[-4000:]}")


def _run(version: str, words: list[str], scratch: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HARNESS / "run", *words],
        env=_environment(version, scratch),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=_DEADLINE_S,
    )


def _environment(version: str, scratch: Path) -> dict[str, str]:
    options = f"{QUICK_START} -Djava.io.tmpdir={scratch}"
    return {**os.environ, "ROCKETMQ": version, "JAVA_TOOL_OPTIONS": options}
