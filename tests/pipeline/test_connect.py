"""Spark Connect: the data source runs on the server; the jobs need a driver of their own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from stratamq_pipeline.jobs.session import SparkOptions, spark_session

from stratamq.client import connect
from stratamq.errors import InvalidRequestError
from stratamq.rpc import discovery
from tests.pipeline.written_log import WrittenLog

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_log_is_read_and_written_over_spark_connect(broker, tmp_path):
    log = WrittenLog(tmp_path / "log")
    log.put_many(40)
    address = discovery.read(broker.root, "commitlog").address
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.connected", log.root, address, tmp_path],
        cwd=ROOT, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"] == "pyspark.sql.connect.session"
    assert found["rows"] == sorted(map(list, log.stored))
    assert "did you mean columns?" in found["refused"]
    assert found["streamed"] == 40 and found["end"]["log"] == log.end
    with connect(broker.root) as client:
        bodies = [message.body for message in client.consume("out")]
    assert sorted(bodies) == sorted(b"%d" % offset for _, _, offset in log.stored)
    # What docs/spark.md says of Spark 4.3.
    assert not found["metrics"]


@pytest.mark.parametrize("where", ["master", "setting", "environment"])
def test_jobs_refuse_spark_connect_and_say_what_to_use(where, monkeypatch):
    if where == "environment":
        monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    options = {
        "master": SparkOptions("sc://host"),
        "setting": SparkOptions(settings={"spark.remote": "sc://host"}),
        "environment": SparkOptions(),
    }[where]
    said = r"sc://host is a server of Spark Connect.*use --master spark://.*spark\.read"
    with pytest.raises(InvalidRequestError, match=said), spark_session("test", options):
        pytest.fail("a session began")
