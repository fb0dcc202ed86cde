"""A standalone Spark master with two workers. To hide directories, each worker gets a mount
namespace of its own: there it sees an empty disk where others see the driver's files.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.java import QUICK_START

START_SECONDS = 240
LIMITS = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    # Work begins when both workers are there, so that both get some.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


def environment() -> dict[str, str]:
    return {**os.environ, **LIMITS, "PYSPARK_PYTHON": sys.executable}


def obstacle() -> str:
    """Why workers cannot be given disks of their own here; empty when they can."""
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
    return "" if done.returncode == 0 else "mount namespaces need root"


@contextmanager
def cluster(scratch: Path, hidden: Sequence[Sequence[Path]] = ((), ())) -> Iterator[str]:
    """A master and a worker of one core for each of `hidden`, the directories in whose place that
    worker has an empty disk of its own. Gives the master's address. All are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        log = scratch / "master.log"
        started.append(
            _daemon(log, (), "master.Master", "--host", "127.0.0.1", "--port", "0",
                    "--webui-port", "0")
        )  # fmt: skip
        master = _logged(started[0], log, r"Starting Spark master at (spark://\S+)")
        logs = [scratch / f"worker-{number}.log" for number in range(1, len(hidden) + 1)]
        for log, directories in zip(logs, hidden, strict=True):
            work = scratch / "work" / log.stem
            started.append(
                _daemon(log, directories, "worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m",
                        "768m", "--webui-port", "0", "-d", str(work), master)
            )  # fmt: skip
        for process, log in zip(started[1:], logs, strict=True):
            _logged(process, log, r"(Successfully registered with master)")
        yield master
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _daemon(log: Path, hidden: Sequence[Path], name: str, *words: str):
    command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
    if hidden:
        mounts = [f"mount -t tmpfs tmpfs {shlex.quote(str(directory))}" for directory in hidden]
        inside = " && ".join([*mounts, f"exec {shlex.join(command)}"])
        command = ["unshare", "--mount", "sh", "-c", inside]
    with log.open("wb") as output:
        return subprocess.Popen(
            command, env=environment(), stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip


def _logged(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Wait until the log has it."""
    for _ in range(START_SECONDS * 10):
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
            break
    raise AssertionError(f"no {pattern} in the log:\n{log.read_text(errors='replace')[-3000:]}")


def spark_home() -> Path:
    import pyspark

    home = Path(pyspark.__file__).parent
    assert shutil.which("java"), "Spark needs Java 17 or later"
    return home
