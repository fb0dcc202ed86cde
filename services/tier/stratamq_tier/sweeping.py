"""What crashes left in the tier, deleted by its writer: each queue is looked at once a day."""

import logging
from operator import methodcaller

from stratamq.errors import StrataError
from stratamq.tier.writing.claim import FencedError
from stratamq.tier.writing.intake import QueueKey
from stratamq_tier.parts import Parts
from stratamq_tier.tenure import Tenure

log = logging.getLogger(__name__)

ORPHANS_AGE_MS = 86_400_000
"""What nothing names is deleted so long after it was written."""


class Sweeping:
    """Deletes what crashes left, during one tenure.

    A pass lists the objects of some queues: as many as make all of them in a day. Nothing of a
    queue without a manifest is deleted: its next message gives it one.
    """

    def __init__(self, parts: Parts, tenure: Tenure) -> None:
        self._parts = parts
        self._tenure = tenure
        self._due: list[QueueKey] = []

    async def some(self, now_ms: int) -> int:
        """One pass: how many objects were deleted. FencedError."""
        if not self._due:
            self._due = [(one.topic, one.queue_id) for one in self._parts.table.manifests()]
        share = self._parts.config.retention_interval_ms / ORPHANS_AGE_MS
        count = 1 + int(len(self._parts.table) * share)
        looked, self._due = self._due[:count], self._due[count:]
        before_ms = now_ms - ORPHANS_AGE_MS
        deleted = 0
        for key in looked:
            try:
                gone = await self._tenure.writers.run(key, methodcaller("tidy", before_ms))
            except FencedError:
                raise
            except StrataError as error:
                log.warning(
                    "the tier was not swept, and is tried again tomorrow",
                    extra={"topic": key[0], "queue": key[1], "reason": str(error)},
                )
                continue
            deleted += len(gone)
            if gone:
                log.info(
                    "what a crash had left in the tier was deleted",
                    extra={"topic": key[0], "queue": key[1], "objects": len(gone)},
                )
        return deleted
