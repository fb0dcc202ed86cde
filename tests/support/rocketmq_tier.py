"""The real RocketMQ's tiered store, run by the harness in `tests/interop/rocketmq-tier`; its README
has the commands. Needs Java 17 and Maven; tests that use it carry the marker `java`."""

import fcntl
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.java import QUICK_START

HARNESS = Path(__file__).parent.parent / "interop" / "rocketmq-tier"
VERSIONS = ("5.3.3", "5.5.0")
_DEADLINE_S = 240

Line = dict[str, Any]


def dump(version: str, directory: Path, scratch: Path) -> list[Line]:
    """What this version reads from a copy of the tier in `directory`."""
    _build(version)
    done = _run(version, ["dump", str(directory)], scratch)
    assert done.returncode == 0, f"RocketMQ {version} ended with {done.returncode}\n{done.stderr}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def write(version: str, directory: Path, scratch: Path, *words: str) -> None:
    """Let this version make a tier in `directory`."""
    _build(version)
    done = _run(version, ["write", str(directory), *words], scratch)
    assert done.returncode == 0, f"RocketMQ {version} ended with {done.returncode}\n{done.stderr}"


@cache
def _build(version: str) -> None:
    target = HARNESS / "target"
    target.mkdir(exist_ok=True)
    with (target / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = _run(version, ["probe"], target)
    # Without a directory it complains, after it was built.
    assert (target / version / "classpath").exists(), done.stderr


def _run(version: str, words: list[str], scratch: Path) -> subprocess.CompletedProcess[str]:
    scratch.mkdir(parents=True, exist_ok=True)
    options = f"{QUICK_START} -Djava.io.tmpdir={scratch}"
    return subprocess.run(
        [HARNESS / "run", *words],
        env={**os.environ, "ROCKETMQ_VERSION": version, "JAVA_TOOL_OPTIONS": options},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_DEADLINE_S,
    )
