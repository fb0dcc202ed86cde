"""How a job's Spark comes up: before a broker is called; one that no executor comes for ends."""

import subprocess
import sys

import pytest
from stratamq_pipeline.export import job as export_job
from stratamq_pipeline.jobs.executors import TIMEOUT_SETTING, Absence
from stratamq_pipeline.jobs.session import SparkOptions
from stratamq_pipeline.stats import job as stats_job

from stratamq.files.simulated_time import SimulatedClock
from tests.pipeline.cluster import SETTINGS, START_SECONDS, cluster, environment
from tests.support.fixtures import unpack

JOB_SECONDS = 300


@pytest.mark.parametrize(
    ("job", "run", "options"),
    [
        (export_job, export_job.run_export, export_job.ExportOptions("host:10911", "out")),
        (stats_job, stats_job.run_stats, stats_job.StatsOptions("host:10911")),
    ],
)
def test_spark_is_started_before_a_broker_is_called(monkeypatch, job, run, options):
    """Its Java is forked, and gRPC's threads abort some of the forks behind a call."""

    def started(*_):
        raise KeyboardInterrupt

    def called(*_):
        raise AssertionError("the broker was called first")

    monkeypatch.setattr(job, "spark_session", started)
    monkeypatch.setattr(job, "open_log_to_read", called)
    with pytest.raises(KeyboardInterrupt):
        run(options, SparkOptions())


def test_executors_may_be_away_without_work_or_for_a_while():
    clock = SimulatedClock()
    absence = Absence(10, clock)

    def is_over_after(seconds: int, *, working: bool, executors: int) -> bool:
        clock.advance_ms(seconds * 1_000)
        return absence.is_over(working=working, executors=executors)

    assert not is_over_after(0, working=False, executors=0)
    assert not is_over_after(60, working=True, executors=0), "it began now"
    assert not is_over_after(9, working=True, executors=0)
    assert not is_over_after(9, working=True, executors=1)
    assert not is_over_after(9, working=True, executors=0), "all were lost now"
    assert not is_over_after(9, working=True, executors=0)
    assert is_over_after(1, working=True, executors=0)


@pytest.mark.spark
@pytest.mark.timeout(JOB_SECONDS + START_SECONDS)
def test_a_job_that_no_executor_comes_for_ends_and_publishes_nothing(tmp_path):
    """The master has no worker."""
    store = unpack("4.9.8-small-clean", tmp_path)
    out = tmp_path / "out"
    settings = {
        **SETTINGS,
        TIMEOUT_SETTING: "3",
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    }
    given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    with cluster(tmp_path, hidden=()) as master:
        done = subprocess.run(
            [sys.executable, "-m", "stratamq.cli", "pipeline", "export", str(store), str(out),
             "--master", master, *given],
            env=environment() | {"COLUMNS": "1000"},
            capture_output=True, text=True, timeout=JOB_SECONDS,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "error: no executor of Spark was there for 3 s" in done.stderr
    assert not out.exists()
