"""The Spark session of a job: `local[*]` out of the box, any cluster through --master and --conf.

A session that is there already (spark-submit, a notebook, a test run) is used as it is, and left.
On a cluster the code goes along as one zip; the libraries it stands on must be installed there.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from stratamq import errors
from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq_pipeline.code_zip import write_code_zip
from stratamq_pipeline.jobs.executors import executors_watched

LOCAL = "local[*]"
SHUFFLE_PARTITIONS_PER_CORE = 2
_LOCAL_HOST = "127.0.0.1"
_RAISED = re.compile(r"stratamq\.errors\.(\w+): (.*)")


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """`master` None: the value of spark-submit or of Spark's own configuration, else `local[*]`."""

    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    progress: bool = False
    """Whether Spark draws its bar on standard error."""


def parse_settings(texts: list[str]) -> dict[str, str]:
    """KEY=VALUE each; InvalidRequestError for what is none."""
    settings = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise InvalidRequestError(f"--conf takes KEY=VALUE, not {text!r}")
        settings[key.strip()] = value
    return settings


@contextmanager
def spark_session(name: str, options: SparkOptions) -> Iterator[SparkSession]:
    """What Python code in an executor raised comes out as the error it was. UnavailableError when
    no executor comes (`executors`). InvalidRequestError for Spark Connect."""
    _refuse_connect(options)
    with ExitStack() as until_end:
        spark = SparkSession.getActiveSession()
        if spark is None:
            # What the driver serves from this directory is asked for until the session ends.
            served = until_end.enter_context(tempfile.TemporaryDirectory(prefix="stratamq-"))
            spark = _start(name, options, Path(served))
            until_end.callback(spark.stop)
            until_end.enter_context(executors_watched(spark))
        with executor_errors():
            yield spark


@contextmanager
def executor_errors() -> Iterator[None]:
    """StrataError instead of the Spark exception that carries its traceback as text."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise _reduced(str(error)) from error


def _reduced(text: str) -> StrataError:
    raised = _RAISED.findall(text)
    if raised:
        name, sentence = raised[-1]
        return _as_raised(getattr(errors, name, StrataError), sentence)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return UnavailableError(f"Spark: {lines[0] if lines else 'the job failed'}")


def _as_raised(kind: Any, sentence: str) -> StrataError:
    """The same class, so that exit codes and handlers fit it; its fields stayed behind."""
    error = kind.__new__(kind)
    StrataError.__init__(error, sentence)
    return error  # type: ignore[no-any-return]


def _refuse_connect(options: SparkOptions) -> None:
    """A job lists, counts and publishes through the driver's own Java."""
    remote = options.settings.get("spark.remote") or os.environ.get("SPARK_REMOTE")  # noqa: TID251
    if (options.master or "").startswith("sc://"):
        remote = options.master
    if remote:
        raise InvalidRequestError(
            f"{remote} is a server of Spark Connect, and a job is a driver: use --master "
            "spark://HOST:PORT, yarn or k8s://… without SPARK_REMOTE and spark.remote. Queries run "
            'there, by spark.read.format("stratamq")'
        )


def _start(name: str, options: SparkOptions, served: Path) -> SparkSession:
    master = options.master or options.settings.get("spark.master")
    # PySpark takes its executors' Python from the environment alone.
    environment = os.environ  # noqa: TID251
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    submitted = "PYSPARK_GATEWAY_PORT" in environment
    local = not submitted and (master or LOCAL).startswith("local")
    builder = SparkSession.builder.appName(f"stratamq {name}")
    if not submitted:
        builder = builder.master(master or LOCAL)
    given = {"spark.ui.showConsoleProgress": str(options.progress).lower()}
    if local:
        environment.setdefault("SPARK_LOCAL_IP", _LOCAL_HOST)
        given |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": _LOCAL_HOST,
            "spark.driver.bindAddress": _LOCAL_HOST,
            "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS_PER_CORE * _cores()),
        }
    given |= {
        "spark.sql.session.timeZone": "UTC",
        **options.settings,
    }
    for key, value in given.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        # The gateway raises plain exceptions, and Py4J's own.
        lines = str(error).strip().splitlines()
        raise UnavailableError(
            f"no Spark session: {lines[0] if lines else type(error).__name__}; "
            "Spark needs Java 17 or later (on Debian: apt-get install openjdk-17-jre-headless)"
        ) from error
    if not local and not submitted:
        archive = served / "stratamq.zip"
        write_code_zip(archive)
        spark.sparkContext.addPyFile(str(archive))
    return spark


def _cores() -> int:
    return os.cpu_count() or 1
