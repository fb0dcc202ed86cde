"""A log of files, copied into a tier: what a broker had before it had a tier.

Read in the log's order, committed queue by queue; what the tier has already is left out, so that a
backfill that was interrupted is begun again and adds what is missing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stratamq.errors import InvalidRequestError, NotFoundError
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.formats.tier_manifest import Epoch, Manifest
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.calls import Procedure, is_name
from stratamq.tier.writing.intake import Intake, QueueKey
from stratamq.tier.writing.merging import run_to_merge
from stratamq.tier.writing.queue_writer import TierQueueWriter


@dataclass(frozen=True, slots=True)
class Copied:
    """What came with a step. `added`: messages that the tier did not have."""

    key: QueueKey
    added: int
    manifest: Manifest


def check_copy(store: Path, to: str, cluster: str, broker: str, export: Path | None) -> None:
    """That a store can be copied there, as a command asks for it. InvalidRequestError,
    NotFoundError."""
    if export is not None and "://" in to:
        raise InvalidRequestError("--export: RocketMQ reads a tier in a directory, and no objects")
    if export is not None and export.exists() and not export.is_dir():
        raise InvalidRequestError(f"--export {export}: no directory")
    if not store.exists():
        raise NotFoundError(f"there is no {store}")
    if "://" not in to and not (store / COMMIT_LOG).is_dir():
        raise NotFoundError(f"{store} is no store: it has no {COMMIT_LOG}/")
    if "://" not in to and Path(to).resolve().is_relative_to(store.resolve()):
        raise InvalidRequestError(
            f"--to {to} is in the store itself, where RocketMQ refuses foreign files: name a "
            "directory beside it"
        )
    for option, name in (("--cluster", cluster), ("--broker", broker)):
        if not is_name(name):
            raise InvalidRequestError(f"{option} {name!r}: no part of a path can have this name")


class Backfill:
    """Backfills one broker's tier. `positions`: the storage's."""

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
        self._writers: dict[QueueKey, TierQueueWriter] = {}

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
        """Return the manifests of all queues that were found."""
        return [writer.manifest for writer in self._writers.values() if writer.manifest]

    def _end(self, writer: TierQueueWriter) -> Procedure[int | None]:
        manifest = writer.manifest or (yield from writer.open())
        return manifest.end_offset if manifest else None

    def _writer(self, key: QueueKey) -> TierQueueWriter:
        writer = self._writers.get(key)
        if writer is None:
            place = QueuePlace(self._cluster, self._broker, *key)
            writer = TierQueueWriter(place, self._epoch, self._positions, self._limits)
            self._writers[key] = writer
        return writer
