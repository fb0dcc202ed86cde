"""Kill `stratamq pipeline export --format iceberg` again and again while it works.

    python -m tests.pipeline.iceberg_kills DIRECTORY KILLS [SEED]

The log grows between the kills. In the end the table must have each of its messages once.
"""

import random
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import stratamq
from tests.pipeline.iceberg_tables import positions, rows, table_of
from tests.pipeline.written_log import WrittenLog

COMMAND = (sys.executable, "-m", "stratamq.cli", "pipeline", "export")
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
    chance = random.Random(seed)
    log, out = WrittenLog(directory / "store", segment_bytes=1 << 14), directory / "out"
    for turn in range(kills):
        for number in range(_GROWTH):
            log.put("ab"[number % 2], number % 3, chance.randbytes(chance.randrange(200)))
        # Every second one has committed before it is killed, however slow the machine is.
        begun = "committed" if turn % 2 else "exporting"
        _killed(log.root, out, begun, chance.uniform(0, LONGEST_S))
    subprocess.run([*COMMAND, log.root, out, "--format", "iceberg"], check=True)
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
    child = subprocess.Popen([*COMMAND, root, out, *options], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said = ""
    for line in child.stderr:
        said += line
        if begun in line:
            break
    else:
        raise AssertionError(f"it ended before it could be killed:\n{said}")
    threading.Event().wait(after_s)
    assert child.poll() is None, child.stderr.read()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stderr.close()


def _orphans(out: Path) -> int:
    """Data files that the current snapshot does not name."""
    named = {
        Path(path).name for path in table_of(out).inspect.data_files()["file_path"].to_pylist()
    }
    return sum(path.name not in named for path in out.rglob("*.parquet"))


if __name__ == "__main__":
    place, count, *rest = sys.argv[1:]
    print(trial(Path(place), int(count), int(rest[0]) if rest else 1))
