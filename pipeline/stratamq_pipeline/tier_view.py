"""A tier as partitions: the driver loads the manifests, executors read the parts that they name.

The log is looked at before the manifests, as a scan does it: what it has no more is in them.
"""

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from stratamq.errors import (
    CorruptionError,
    CorruptRecordError,
    InvalidRequestError,
    LostMessagesError,
    OffsetOutOfRangeError,
)
from stratamq.table.decode import Decoder
from stratamq.table.selection import Covered, Queue, Selection
from stratamq.table.tier_parts import (
    AT_ONCE_BYTES,
    TierDecoder,
    TierName,
    TierPart,
    chosen_broker,
    in_groups,
    plan_queue,
    wanted_queues,
)
from stratamq.tier.driver.calls import AbsentError, Size, ask
from stratamq.tier.driver.opening import open_storage
from stratamq.tier.driver.running import Runner
from stratamq.tier.reading.queue_list import MISSING
from stratamq_pipeline.options import SourceOptions
from stratamq_pipeline.partition import Partition, pass_over

log = logging.getLogger(__name__)

THREADS = 8
_PARTS_OF_A_PARTITION = 4096


class TierPartition(Partition):
    """Parts of a tier, and what is wanted of them."""

    def __init__(self, target: str, parts: list[TierPart], selection: Selection) -> None:
        super().__init__(selection)
        self.target = target
        self.parts = parts

    def read(self, options: SourceOptions, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        """In an executor. What retention took meanwhile is lost to the query, or its end."""
        known = TierDecoder(
            decoder,
            replace(self.selection, elsewhere={}),
            options.verify,
            pass_over if options.permissive else None,
        )
        with open_storage(self.target) as storage, closing(Runner(storage, THREADS)) as runner:
            for group in in_groups(self.parts, AT_ONCE_BYTES):
                try:
                    yield from runner.run(known.read(group))
                except AbsentError as error:
                    _check_shared(runner, self.target, group[0])
                    if options.fail_on_data_loss:
                        raise OffsetOutOfRangeError(
                            f"{error.message}: the tier's retention took it while it was read "
                            "(failOnDataLoss=false reads on behind it)",
                            0,
                            0,
                        ) from error
                    log.warning("data lost", extra={"tier": self.target, "why": error.message})


@dataclass(frozen=True, slots=True)
class TierView:
    """What of a tier is wanted as of one moment, and what it has of each wanted queue."""

    target: str
    parts: tuple[TierPart, ...]
    covered: Mapping[Queue, Covered]

    @property
    def bytes(self) -> int:
        return sum(part.part.size for part in self.parts)

    def pieces(self, part_bytes: int, selection: Selection) -> list[InputPartition]:
        groups = in_groups(self.parts, part_bytes, _PARTS_OF_A_PARTITION)
        return [TierPartition(self.target, group, selection) for group in groups]

    def check_starts(self, starting: Mapping[Queue, int]) -> dict[Queue, int]:
        """Those of queues that the tier has not. OffsetOutOfRangeError when a named offset has left
        the tier."""
        for queue, at in sorted(starting.items()):
            known = self.covered.get(queue)
            if known is not None and 0 <= at < known.begin:
                raise OffsetOutOfRangeError(
                    f"startingOffsets: topic {queue[0]} queue {queue[1]} begins at {at}, and the "
                    f"tier has it from {known.begin} on (failOnDataLoss=false begins there)",
                    known.begin,
                    known.end,
                )
        return {queue: at for queue, at in starting.items() if queue not in self.covered}


def _is_missing(error: CorruptionError) -> bool:
    return isinstance(error, CorruptRecordError) and error.reason == MISSING


def target_for_workers(target: str) -> str:
    """Workers do not run in the driver's directory."""
    return target if "://" in target else os.path.abspath(target)


def open_tier_view(options: SourceOptions, selection: Selection) -> TierView:
    """Open the tier in its present state. Raises NotFoundError, and InvalidRequestError if the
    tiers of several brokers are there."""
    target = target_for_workers(options.tier)
    name = TierName(target, options.cluster, options.broker)
    parts: list[TierPart] = []
    covered: dict[Queue, Covered] = {}
    with open_storage(target) as storage, closing(Runner(storage, THREADS)) as runner:
        places, listed = runner.run(wanted_queues(*runner.run(chosen_broker(name)), selection))
        for place in places:
            if selection.span_of(place.topic, place.queue_id) is None:
                continue
            try:
                plan = runner.run(plan_queue(place, selection, listed=listed))
                if plan is not None:
                    plan.require_not_lost(None)
            except CorruptionError as error:
                is_lost = isinstance(error, LostMessagesError)
                if options.fail_on_data_loss or not (is_lost or _is_missing(error)):
                    raise
                log.warning("data lost", extra={"tier": target, "why": error.message})
                plan = runner.run(plan_queue(place, selection))
            if plan is not None:
                parts += plan.parts
                covered[place.topic, place.queue_id] = plan.covered
    return TierView(target, tuple(parts), covered)


def _check_shared(runner: Runner, target: str, part: TierPart) -> None:
    """InvalidRequestError when this machine has no such tier."""
    if runner.run(ask(Size(part.place.manifest))) is None:
        raise InvalidRequestError(
            f"{socket.gethostname()} does not see the tier that the driver sees in {target} (there "
            f"is no {part.place.manifest}): the directory has to be mounted under one path on the "
            "driver and all workers"
        )
