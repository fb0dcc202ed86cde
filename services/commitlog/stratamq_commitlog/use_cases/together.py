"""The use cases of one log, as its process makes them and a protocol's codec takes them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stratamq.service.worker import ThreadWorker
from stratamq_commitlog.use_cases.append_spans import AppendSpans
from stratamq_commitlog.use_cases.appending import Appending
from stratamq_commitlog.use_cases.reading import OffsetReads
from stratamq_commitlog.use_cases.replicating import Replicating
from stratamq_commitlog.use_cases.served_log import ServedLog
from stratamq_commitlog.use_cases.topics import Topics


@dataclass(frozen=True, slots=True)
class LogUseCases:
    log: ServedLog
    appending: Appending
    topics: Topics
    reading: OffsetReads
    replicating: Replicating


def use_cases_of(
    log: ServedLog,
    reads: ThreadWorker,
    reopen: Callable[[], Awaitable[None]] | None = None,
    spans: AppendSpans | None = None,
) -> LogUseCases:
    """`reopen` closes the log and opens it again: for a cut that needs it."""
    return LogUseCases(
        log,
        Appending(log, spans),
        Topics(log),
        OffsetReads(log, reads),
        Replicating(log, reopen),
    )
