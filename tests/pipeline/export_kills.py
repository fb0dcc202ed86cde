"""Kill `stratamq pipeline export`, Java included, again and again while it works.

    JAVA_HOME=… python -m tests.pipeline.export_kills DIRECTORY KILLS [SEED]

The log grows between the kills. In the end the export must have each of its messages once, in the
files that its manifests name.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from stratamq_pipeline.export.manifest import ExportDirectory
from stratamq_pipeline.jobs.output_files import LocalFiles

import stratamq
from tests.pipeline.written_log import WrittenLog

COMMAND = (sys.executable, "-m", "stratamq.cli", "pipeline", "export")
LONGEST_S = 6.0
"""From the first word on a run takes some seconds: kills fall into all of its parts."""
_GROWTH = 200
_BEGINNINGS = ("exporting", "counting", "publishing")


@dataclass(frozen=True, slots=True)
class ExportTally:
    """What a trial has found. `ended`: runs that were faster than their kill."""

    kills: int
    ended: int
    runs: int
    messages: int
    missing: int
    twice: int


def trial(directory: Path, kills: int, seed: int) -> ExportTally:
    chance = random.Random(seed)
    log, out = WrittenLog(directory / "store", segment_bytes=1 << 14), directory / "out"
    killed = ended = 0
    while killed < kills:
        for number in range(_GROWTH):
            log.put("ab"[number % 2], number % 3, chance.randbytes(chance.randrange(200)))
        begun = chance.choice(_BEGINNINGS)
        longest = LONGEST_S if begun == "exporting" else LONGEST_S / 6
        if _killed(log.root, out, begun, chance.uniform(0, longest)):
            killed += 1
        else:
            ended += 1
        print(f"{killed} of {kills} killed, {ended} ended before", file=sys.stderr)
    subprocess.run([*COMMAND, log.root, out], check=True)
    manifests = ExportDirectory(LocalFiles(out)).manifests()
    there: Counter[int] = Counter()
    for manifest in manifests:
        for name in manifest.files:
            there.update(pq.read_table(out / name)["physicalOffset"].to_pylist())
    wanted = set(stratamq.scan(log.root).to_arrow()["physicalOffset"].to_pylist())
    return ExportTally(
        kills=killed,
        ended=ended,
        runs=len(manifests),
        messages=len(wanted),
        missing=len(wanted - set(there)),
        twice=there.total() - len(there),
    )


def _killed(root: Path, out: Path, begun: str, after_s: float) -> bool:
    """Run the command, and kill it so long after it has said that word; false if it was faster."""
    child = subprocess.Popen(
        [*COMMAND, root, out, "--master", "local[2]"],
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with child:
        said = ""
        for line in child.stderr:
            said += line
            if begun in line:
                break
        else:
            raise AssertionError(f"it ended before it could be killed:\n{said}")
        threading.Event().wait(after_s)
        in_time = child.poll() is None
        os.killpg(child.pid, signal.SIGKILL)
    return in_time


if __name__ == "__main__":
    place, count, *rest = sys.argv[1:]
    print(trial(Path(place), int(count), int(rest[0]) if rest else 1))
