"""Ends a job that has no executors. Spark itself waits for them without an end, and says so in its
log alone: an image that cannot be pulled, a quota that is used up, no worker with so much memory.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.files.clock import SystemClock
from stratamq.files.port import Clock

TIMEOUT_SETTING = "spark.stratamq.executorsTimeout"
"""A key of Spark's configuration; its value is in seconds."""
DEFAULT_TIMEOUT_S = 600.0
_LOOK_S = 1.0


@dataclass(slots=True)
class Absence:
    """Whether work has waited for executors for too long."""

    timeout_s: float
    clock: Clock
    _since_ns: int | None = None

    def is_over(self, *, working: bool, executors: int) -> bool:
        """What is there now. Without work executors may be away for as long as they like."""
        now_ns = self.clock.monotonic_ns()
        if executors or not working:
            self._since_ns = None
        elif self._since_ns is None:
            self._since_ns = now_ns
        return self._since_ns is not None and now_ns - self._since_ns >= self.timeout_s * 1e9


@contextmanager
def executors_watched(spark: SparkSession) -> Iterator[None]:
    """UnavailableError when Spark had work and no executor for the time of `TIMEOUT_SETTING`; its
    work is cancelled then. InvalidRequestError when the setting is no time."""
    if spark.sparkContext.master.startswith("local"):
        yield
        return
    watch = _Watch(spark, Absence(_timeout_s(spark), SystemClock()))
    thread = threading.Thread(target=watch.run, name="executors", daemon=True)
    thread.start()
    try:
        yield
    except StrataError as error:
        if watch.cancelled:
            raise UnavailableError(
                f"no executor of Spark was there for {watch.absence.timeout_s:g} s "
                f"({TIMEOUT_SETTING}). See what keeps them away: on Kubernetes `kubectl describe "
                "pods -l spark-role=executor` (image, quota, nodes), else the master's page"
            ) from error
        raise
    finally:
        watch.ended.set()
        thread.join()


@dataclass(slots=True)
class _Watch:
    spark: SparkSession
    absence: Absence
    ended: threading.Event = field(default_factory=threading.Event)
    cancelled: bool = False

    def run(self) -> None:
        context = self.spark.sparkContext
        while not self.ended.wait(_LOOK_S):
            try:
                working = bool(context.statusTracker().getActiveJobsIds())
                executors = context._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver
                if self.absence.is_over(working=working, executors=executors):
                    self.cancelled = True
                    context.cancelAllJobs()
            except (Py4JError, OSError):
                return  # Spark has ended, which the job's own calls find out


def _timeout_s(spark: SparkSession) -> float:
    given = spark.sparkContext.getConf().get(TIMEOUT_SETTING)
    try:
        timeout_s = DEFAULT_TIMEOUT_S if given is None else float(given)
    except ValueError:
        timeout_s = -1.0
    if not timeout_s > 0:
        raise InvalidRequestError(f"{TIMEOUT_SETTING} takes seconds above 0, not {given!r}")
    return timeout_s
