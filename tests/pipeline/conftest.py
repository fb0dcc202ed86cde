"""One Spark session for a whole run; stores to read: unpacked fixtures, and a running broker."""

import os
import sys

import pytest

from tests.support.brokers import Broker
from tests.support.fixtures import unpack

SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def spark_builder(local_dir, master="local[2]"):
    """A session's builder with the settings of all tests; `local_dir` takes Spark's own files."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("stratamq tests")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    return builder.config("spark.local.dir", f"{local_dir}/local").config(
        "spark.sql.warehouse.dir", f"{local_dir}/warehouse"
    )


def pytest_collection_modifyitems(items):
    """Whatever asks for the session needs a Java."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    session = spark_builder(tmp_path_factory.mktemp("spark")).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def fixture_store(tmp_path_factory):
    """A function: the directory of a store that RocketMQ wrote. Not to be changed."""
    unpacked = {}

    def of(name):
        if name not in unpacked:
            unpacked[name] = unpack(name, tmp_path_factory.mktemp("store"))
        return unpacked[name]

    return of


@pytest.fixture
def broker(tmp_path):
    """A running broker with small segments, so that many tests' messages fill several."""
    settings = ["commitlog.segment_bytes=65536", "dispatcher.queue_file_bytes=2000"]
    with Broker(tmp_path / "store", tmp_path / "logs", settings).start() as started:
        yield started
        started.stop()
