"""spark-submit on a standalone master with two workers: the code goes along as one zip.

Four JVMs on two cores take their time; nothing here is about speed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from stratamq_pipeline.code_zip import LIBRARIES, PACKAGES, write_code_zip
from stratamq_pipeline.commands import running
from stratamq_pipeline.jobs.session import told_by_executors

from stratamq.errors import ConfigurationError, CorruptionError, InvalidRequestError
from tests.pipeline.job_stores import built_by_services, files_below
from tests.support.fixtures import geometry, unpack

JOB_SECONDS = 900
START_SECONDS = 240
LIMITS = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}


def test_the_zip_is_the_same_each_time_and_has_every_module(tmp_path):
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    count = write_code_zip(first)
    write_code_zip(second)
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert len(names) == count
    assert {name.partition("/")[0] for name in names} == set(PACKAGES)
    assert {"stratamq/table/decode.py", "stratamq_pipeline/submit.py"} <= set(names)


def test_what_executors_run_stands_in_the_zip_and_its_libraries(tmp_path):
    """Imported from the zip alone, in a Python that does not see the tree."""
    archive = tmp_path / "stratamq.zip"
    write_code_zip(archive)
    modules = [
        "stratamq_pipeline.rebuild.job",
        "stratamq_pipeline.audit.job",
        "stratamq_pipeline.export.job",
        "stratamq_pipeline.stats.tables",
        "pyspark_stratamq",
    ]
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        f"import {', '.join(modules)}\n"
        "import stratamq_pipeline\n"
        f"assert stratamq_pipeline.__file__.startswith({str(archive)!r})\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert set(LIBRARIES) & {"numpy", "pyarrow"} == {"numpy", "pyarrow"}


def test_an_error_in_an_executor_keeps_its_class_and_its_sentence():
    from pyspark.errors import PySparkException

    text = (
        "Job aborted due to stage failure: ... Traceback (most recent call last):\n"
        "  File part_reader.py, line 122\n"
        "stratamq.errors.CorruptionError: x/00: the log is damaged at offset 7 (magic)\n"
    )
    with (
        pytest.raises(CorruptionError, match=r"^x/00: the log is damaged at offset 7 \(magic\)$"),
        told_by_executors(),
    ):
        raise PySparkException(text)


def test_the_commands_are_there_without_what_they_need(monkeypatch):
    """`stratamq --help` imports neither Spark nor Arrow; a job says what to install."""
    program = (
        "import sys, typer, stratamq_pipeline.commands as commands\n"
        "commands.register(typer.Typer())\n"
        "assert not {'pyspark', 'pyarrow', 'pandas', 'numpy', 'matplotlib'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(
        running.importlib.util, "find_spec", lambda name: None if name == "pyspark" else object()
    )
    with pytest.raises(ConfigurationError, match=r"pyspark not installed.*stratamq\[pipeline\]"):
        running.spark_options(None, None)


def test_settings_are_passed_through_and_checked():
    options = running.spark_options("spark://a:1", ["spark.x=1", "spark.y=a=b"])
    assert options.master == "spark://a:1"
    assert options.settings == {"spark.x": "1", "spark.y": "a=b"}
    with pytest.raises(InvalidRequestError, match="KEY=VALUE"):
        running.spark_options(None, ["spark.x"])


@pytest.mark.spark
@pytest.mark.timeout(JOB_SECONDS + 3 * START_SECONDS)
def test_a_rebuild_on_a_cluster_of_two_workers(tmp_path):
    expected = built_by_services("4.9.8-small-clean", tmp_path / "services")
    root = unpack("4.9.8-small-clean", tmp_path)
    sizes = geometry(root)
    environment = {**os.environ, **LIMITS, "PYSPARK_PYTHON": sys.executable}
    archive = tmp_path / "stratamq.zip"
    packed = subprocess.run(
        [sys.executable, "-m", "stratamq.cli", "pipeline", "zip", str(archive)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert packed.returncode == 0, packed.stderr
    with cluster(tmp_path, environment) as master:
        done = subprocess.run(
            [
                *(spark_home() / "bin" / "spark-submit", "--master", master),
                *("--py-files", archive, "--conf", "spark.ui.enabled=false"),
                *("--conf", "spark.cores.max=2", "--conf", "spark.executor.cores=1"),
                *("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=512m"),
                *("--conf", "spark.driver.host=127.0.0.1"),
                *("--conf", "spark.driver.bindAddress=127.0.0.1"),
                *("--conf", "spark.sql.shuffle.partitions=4"),
                *(tmp_path / "stratamq_job.py", "rebuild", root, tmp_path / "out"),
                *("--queue-file-bytes", str(sizes.queue_units * 20)),
                *("--index-slots", str(sizes.slots), "--index-items", str(sizes.items)),
                *("--output", "json"),
            ],
            env=environment, capture_output=True, text=True, timeout=JOB_SECONDS, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-6000:]
        workers = [path.name for path in (tmp_path / "work").glob("worker-*/app-*/*")]
    assert json.loads(done.stdout.splitlines()[-1])["units"] == 300
    assert files_below(tmp_path / "out", "consumequeue", "index") == expected
    assert len(workers) == 2


@contextmanager
def cluster(scratch: Path, environment: dict[str, str]) -> Iterator[str]:
    """A master and two workers of one core; the master's address. All are killed at the end."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        log = scratch / "master.log"
        started.append(
            daemon(log, environment, "master.Master", "--host", "127.0.0.1", "--port", "0",
                   "--webui-port", "0")
        )  # fmt: skip
        master = told(started[0], log, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            log = scratch / f"worker-{number}.log"
            work = scratch / "work" / f"worker-{number}"
            started.append(
                daemon(log, environment, "worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m",
                       "768m", "--webui-port", "0", "-d", str(work), master)
            )  # fmt: skip
            told(started[-1], log, r"(Successfully registered with master)")
        yield master
    finally:
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def daemon(log: Path, environment: dict[str, str], name: str, *words: str):
    with log.open("wb") as output:
        return subprocess.Popen(
            [spark_home() / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *words],
            env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def told(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Wait until the log says it."""
    for _ in range(START_SECONDS * 10):
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found[1]
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
            break
    raise AssertionError(f"{pattern} was never said:\n{log.read_text(errors='replace')[-3000:]}")


def spark_home() -> Path:
    import pyspark

    home = Path(pyspark.__file__).parent
    assert shutil.which("java"), "Spark needs Java 17 or later"
    return home
