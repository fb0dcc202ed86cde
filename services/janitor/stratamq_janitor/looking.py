"""Looks at regular intervals, and soon again after one that failed."""

import asyncio
import logging
from typing import Protocol

from stratamq.errors import StrataError
from stratamq.service.worker import ThreadWorker
from stratamq_janitor import metrics
from stratamq_janitor.cleaner import Cleaner

log = logging.getLogger(__name__)

RETRY_MS = 1_000
"""After a look that failed: the log may just be starting."""
STARTING_LOOKS = 10
"""So many may fail before the first that does not without a warning in the logs."""


class Shown(Protocol):
    """Where people see how the newest look ended."""

    failure: str


async def look_regularly(
    shown: Shown, cleaner: Cleaner, worker: ThreadWorker, interval_ms: int
) -> None:
    """Until it is cancelled. The cleaner is used on `worker` alone."""
    observer = metrics.Observer(cleaner)
    starting, warned = STARTING_LOOKS, ""
    while True:
        metrics.LOOKS.inc()
        delay_ms = interval_ms
        try:
            await worker.run(cleaner.run)
            shown.failure = warned = ""
            starting = 0
        except (StrataError, OSError) as error:
            # The log protects itself; the next look finds it again.
            metrics.FAILED.inc()
            shown.failure = str(error)
            if starting:
                starting -= 1
            elif warned != shown.failure:
                log.warning("check failed", extra={"error": shown.failure})
                warned = shown.failure
            delay_ms = min(interval_ms, RETRY_MS)
        observer.observe()
        await asyncio.sleep(delay_ms / 1000)
