"""What the tier has of every queue, into the table: also where that is less than it was."""

import logging
from collections.abc import Callable

from stratamq.errors import CorruptRecordError
from stratamq.formats.tier_manifest import Manifest
from stratamq.tier.driver.running import Runner
from stratamq.tier.reading.manifests import load_readable
from stratamq.tier.reading.queue_list import load_queue_list, missing, missing_queues
from stratamq.tier.reading.verify import queues_of
from stratamq_tier.queue_table import TierQueueTable

log = logging.getLogger(__name__)

LOAD_AT_ONCE = 256


async def load(
    runner: Runner,
    names: tuple[str, str],
    table: TierQueueTable,
    skips: Callable[[str, int], bool] | None = None,
) -> None:
    """`names`: cluster and broker; `skips`: queues that are not asked for."""
    passed_over = skips or (lambda topic, queue_id: False)
    listed = await runner.start(load_queue_list(*names))
    places = await runner.start(queues_of(*names, skips=passed_over))
    for place in missing_queues(*names, listed, places):
        if not passed_over(place.topic, place.queue_id):
            _put(table, missing(place), place.topic, place.queue_id)
    for low in range(0, len(places), LOAD_AT_ONCE):
        chunk = places[low : low + LOAD_AT_ONCE]
        known = [table.get(place.topic, place.queue_id) for place in chunk]
        found = await runner.start(load_readable(chunk))
        for place, manifest, before in zip(chunk, found, known, strict=True):
            name = place.topic, place.queue_id
            if isinstance(manifest, Manifest) and not manifest.records and name in listed:
                manifest = missing(place)
            _put(table, manifest, *name, before.manifest if before is not None else None)


def _put(
    table: TierQueueTable,
    manifest: Manifest | CorruptRecordError,
    topic: str,
    queue_id: int,
    before: Manifest | None = None,
) -> None:
    """`before`: what was known when it was asked for."""
    if not isinstance(manifest, CorruptRecordError):
        table.put(manifest, before)
        return
    table.put_damaged((topic, queue_id), manifest)
    log.error(
        "the manifest of a queue cannot be read: what the tier has of it is not served, and "
        "nothing is added, until the object is restored",
        extra={"topic": topic, "queue": queue_id, "reason": str(manifest)},
    )
