"""The log's servicer without a server."""

from stratamq_commitlog.servicer import CommitLogServicer
from stratamq_commitlog.use_cases.served_log import ServedLog
from stratamq_commitlog.use_cases.together import use_cases_of


def servicer_of(served: ServedLog) -> CommitLogServicer:
    """A servicer by which nothing is read and nothing opened again."""
    return CommitLogServicer(use_cases_of(served, None))  # type: ignore[arg-type]
