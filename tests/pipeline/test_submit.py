"""spark-submit on a standalone master with two workers: the code goes along as one zip.

Four JVMs on two cores take their time; nothing here is about speed.
"""

import json
import subprocess
import sys
import zipfile

import pytest
from stratamq_pipeline import commands as running
from stratamq_pipeline.code_zip import LIBRARIES, PACKAGES, write_code_zip
from stratamq_pipeline.jobs.session import executor_errors

from stratamq.errors import ConfigurationError, CorruptionError, InvalidRequestError
from tests.pipeline.cluster import SETTINGS, START_SECONDS, cluster, environment, spark_home
from tests.pipeline.job_stores import built_by_services, files_below
from tests.support.fixtures import geometry, unpack

JOB_SECONDS = 900


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
        executor_errors(),
    ):
        raise PySparkException(text)


def test_the_commands_are_there_without_what_they_need(monkeypatch):
    """`stratamq --help` imports neither Spark nor Arrow; a job names what to install."""
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
        running.Running().spark_options()


def test_settings_are_passed_through_and_checked():
    given = running.Running(master="spark://a:1", conf=["spark.x=1", "spark.y=a=b"])
    options = given.spark_options()
    assert options.master == "spark://a:1"
    assert options.settings == {"spark.x": "1", "spark.y": "a=b"}
    with pytest.raises(InvalidRequestError, match="KEY=VALUE"):
        running.Running(conf=["spark.x"]).spark_options()


@pytest.mark.spark
@pytest.mark.timeout(JOB_SECONDS + 3 * START_SECONDS)
def test_a_rebuild_on_a_cluster_of_two_workers(tmp_path):
    expected = built_by_services("4.9.8-small-clean", tmp_path / "services")
    root = unpack("4.9.8-small-clean", tmp_path)
    sizes = geometry(root)
    archive = tmp_path / "stratamq.zip"
    packed = subprocess.run(
        [sys.executable, "-m", "stratamq.cli", "pipeline", "zip", str(archive)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert packed.returncode == 0, packed.stderr
    with cluster(tmp_path) as master:
        done = subprocess.run(
            [
                *(spark_home() / "bin" / "spark-submit", "--master", master),
                *("--py-files", archive),
                *(word for pair in SETTINGS.items() for word in ("--conf", "=".join(pair))),
                *(tmp_path / "stratamq_job.py", "rebuild", root, tmp_path / "out"),
                *("--queue-file-bytes", str(sizes.queue_units * 20)),
                *("--index-slots", str(sizes.slots), "--index-items", str(sizes.items)),
                *("--output", "json"),
            ],
            env=environment(), capture_output=True, text=True, timeout=JOB_SECONDS, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-6000:]
        workers = [path.name for path in (tmp_path / "work").glob("worker-*/app-*/*")]
    assert json.loads(done.stdout.splitlines()[-1])["units"] == 300
    assert files_below(tmp_path / "out", "consumequeue", "index") == expected
    assert len(workers) == 2
