"""The log's servicer without a server."""

from collections.abc import Awaitable, Callable

from stratamq_commitlog.servicer import CommitLogServicer
from stratamq_commitlog.use_cases.appending import Appending
from stratamq_commitlog.use_cases.served_log import ServedLog

from stratamq.service.worker import ThreadWorker


def servicer_of(
    served: ServedLog,
    reads: ThreadWorker | None = None,
    reopen: Callable[[], Awaitable[None]] | None = None,
) -> CommitLogServicer:
    """Without `reads` nothing may be read."""
    return CommitLogServicer(served, Appending(served), reads, reopen)  # type: ignore[arg-type]
