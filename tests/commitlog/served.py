"""The log's servicer without a server."""

from stratamq_commitlog.servicer import CommitLogServicer
from stratamq_commitlog.use_cases.appending import Appending
from stratamq_commitlog.use_cases.reading import OffsetReads
from stratamq_commitlog.use_cases.replicating import Replicating
from stratamq_commitlog.use_cases.served_log import ServedLog
from stratamq_commitlog.use_cases.topics import Topics

from stratamq.service.worker import ThreadWorker


def servicer_of(
    served: ServedLog,
    reads: ThreadWorker | None = None,
    replicating: Replicating | None = None,
) -> CommitLogServicer:
    """Without `reads` nothing may be read."""
    return CommitLogServicer(
        served,
        Appending(served),
        Topics(served),
        OffsetReads(served, reads),  # type: ignore[arg-type]
        replicating or Replicating(served, None),
    )
