"""Kill `stratamq pipeline export --format iceberg` again and again while it works.

    python -m tests.pipeline.iceberg_kills DIRECTORY KILLS [SEED]

The log grows between the kills. In the end the table must have each of its messages once. Each
command runs in a fork of this process, which has imported what it needs: on a busy machine a new
interpreter takes a minute to do so, and a commit less than a second.
"""

import os
import random
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import stratamq
from stratamq.cli.__main__ import application, run
from tests.pipeline.iceberg_tables import positions, rows, table_of
from tests.pipeline.written_log import WrittenLog

COMMAND = ("pipeline", "export")
LONGEST_S = 0.6
"""A commit takes some 0.05 s: kills fall into all of its parts."""
_GROWTH = 400


@dataclass(frozen=True, slots=True)
class KillTally:
    """What a trial has found."""

    kills: int
    commits: int
    messages: int
    orphans: int
    missing: int
    twice: int


def trial(directory: Path, kills: int, seed: int) -> KillTally:
    application("")
    chance = random.Random(seed)
    log, out = WrittenLog(directory / "store", segment_bytes=1 << 14), directory / "out"
    for turn in range(kills):
        for number in range(_GROWTH):
            log.put("ab"[number % 2], number % 3, chance.randbytes(chance.randrange(200)))
        # Every second one has committed before it is killed, however slow the machine is.
        begun = "committed" if turn % 2 else "exporting"
        _killed(log.root, out, begun, chance.uniform(0, LONGEST_S))
    assert run([*COMMAND, str(log.root), str(out), "--format", "iceberg"]) == 0
    there = [row["physicalOffset"] for row in rows(out)]
    wanted = set(stratamq.scan(log.root).to_arrow()["physicalOffset"].to_pylist())
    return KillTally(
        kills=kills,
        commits=len(positions(out)),
        messages=len(wanted),
        orphans=_orphans(out),
        missing=len(wanted - set(there)),
        twice=len(there) - len(set(there)),
    )


def _killed(root: Path, out: Path, begun: str, after_s: float) -> None:
    """Run the command, and kill it so long after it has said that word."""
    options = ("--format", "iceberg", "--follow", "--interval", "0.1", "--commit-bytes", "1")
    errors, errors_of_child = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(errors_of_child, sys.stderr.fileno())
            run([*COMMAND, str(root), str(out), *options])
        finally:
            os._exit(1)
    os.close(errors_of_child)
    with open(errors) as lines:
        said = ""
        for line in lines:
            said += line
            if begun in line:
                break
        else:
            raise AssertionError(f"it ended before it could be killed:\n{said}")
        threading.Event().wait(after_s)
        assert os.waitpid(child, os.WNOHANG) == (0, 0), lines.read()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _orphans(out: Path) -> int:
    """Data files that the current snapshot does not name."""
    named = {
        Path(path).name for path in table_of(out).inspect.data_files()["file_path"].to_pylist()
    }
    return sum(path.name not in named for path in out.rglob("*.parquet"))


if __name__ == "__main__":
    place, count, *rest = sys.argv[1:]
    print(trial(Path(place), int(count), int(rest[0]) if rest else 1))
