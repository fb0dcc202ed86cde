"""A log of files, copied into a tier: what a broker had before it had a tier.

Read in the log's order, committed queue by queue; what the tier has already is left out, so that a
backfill that was interrupted is begun again and adds what is missing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.formats.tier_manifest import Epoch, Manifest
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.writing.intake import Intake, QueueKey
from stratamq.tier.writing.merging import run_to_merge
from stratamq.tier.writing.queue_writer import QueueWriter


@dataclass(frozen=True, slots=True)
class Copied:
    """What came with a step. `added`: messages that the tier did not have."""

    key: QueueKey
    added: int
    manifest: Manifest


class Backfill:
    """Of one broker. `positions`: the storage's."""

    def __init__(
        self,
        cluster: str,
        broker: str,
        epoch: Epoch,
        positions: bool,
        limits: TierLimits,
        intake: Intake,
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._epoch = epoch
        self._positions = positions
        self._limits = limits
        self.intake = intake
        self._writers: dict[QueueKey, QueueWriter] = {}

    def commit_due(self, *, everything: bool = False) -> Procedure[list[Copied]]:
        """Commit the batches of the intake that are due. Segments roll by the messages' times."""
        copied = []
        for due in self.intake.due(0, everything=everything):
            batch, writer = due.batch, self._writer(due.key)
            before = yield from self._end(writer)
            manifest = yield from writer.commit(batch, int(batch.times[-1]))
            if run_to_merge(manifest):
                manifest = (yield from writer.merge(int(batch.times[-1]))) or manifest
            added = len(batch.behind(before).sizes) if before is not None else len(batch.sizes)
            copied.append(Copied(due.key, added, manifest))
        return copied

    def manifests(self) -> Iterable[Manifest]:
        """Of all queues that were met."""
        return [writer.manifest for writer in self._writers.values() if writer.manifest]

    def _end(self, writer: QueueWriter) -> Procedure[int | None]:
        manifest = writer.manifest or (yield from writer.open())
        return manifest.end_offset if manifest else None

    def _writer(self, key: QueueKey) -> QueueWriter:
        writer = self._writers.get(key)
        if writer is None:
            place = QueuePlace(self._cluster, self._broker, *key)
            writer = QueueWriter(place, self._epoch, self._positions, self._limits)
            self._writers[key] = writer
        return writer
