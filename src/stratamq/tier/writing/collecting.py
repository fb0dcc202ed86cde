"""What can be deleted of a whole broker's tier, without the service that writes it.

Looking changes nothing, and may be done while the tier is written: objects are listed before the
manifest is loaded, so that what was committed in between is named.

Deleting is a writer's work. It claims the tier, and of each queue in which something is to be
deleted it swaps the manifest first: a writer of before, even one that has written a part and was
stopped for days, finds another manifest and ends (FencedError). What is named from then on is the
work of later writers, whose objects are younger than anything that is deleted.
"""

from dataclasses import dataclass

from stratamq.errors import CorruptRecordError
from stratamq.formats.tier_manifest import Epoch
from stratamq.tier.containers.place import QueuePlace, TierLimits
from stratamq.tier.driver.calls import AbsentError, Listed, Procedure
from stratamq.tier.reading.contents import load_writer
from stratamq.tier.reading.manifests import load_manifest
from stratamq.tier.reading.queue_list import missing
from stratamq.tier.writing.claim import FencedError, claim
from stratamq.tier.writing.orphans import orphans, taken_out
from stratamq.tier.writing.queue_writer import TierQueueWriter

OFFLINE_GENERATION = 0
"""Below the generation of every log: a tier that a service writes is left to it."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """Garbage of one queue. `unnamed`: objects that no manifest names. `dropped`: paths that
    retention or a merge has removed, and whose grace time is over. `fault`: why the queue cannot be
    examined."""

    place: QueuePlace
    unnamed: tuple[Listed, ...] = ()
    dropped: tuple[str, ...] = ()
    fault: str = ""

    def __bool__(self) -> bool:
        return bool(self.unnamed or self.dropped)


def garbage_of(
    place: QueuePlace, objects: list[Listed], before_ms: int, *, listed: bool = False
) -> Procedure[Garbage]:
    """What nothing names, of the objects listed a moment ago. Changes nothing. Nothing goes while a
    manifest is missing of a queue of which the tier has had messages (`listed`)."""
    try:
        manifest = yield from load_manifest(place)
        if listed and (manifest is None or not manifest.records):
            raise missing(place)
        unnamed = yield from orphans(objects, place, manifest, before_ms)
    except (CorruptRecordError, AbsentError) as error:
        return Garbage(place, fault=error.message)
    due = taken_out(place, manifest, before_ms) if manifest is not None else []
    return Garbage(place, tuple(unnamed), tuple(due))


def claim_to_collect(cluster: str, broker: str, *, take_over: bool) -> Procedure[Epoch]:
    """An epoch above every writer's. FencedError: a service has claimed the tier, and would be
    ended (`take_over`: it is)."""
    held = yield from load_writer(cluster, broker)
    if held is not None and held[0] > OFFLINE_GENERATION and not take_over:
        raise FencedError(
            f"a tier service has claimed the tier of {cluster}/{broker}: stop it, and give "
            "--take-over; one that still runs writes no more then until its next start"
        )
    generation = held[0] if held is not None and take_over else OFFLINE_GENERATION
    return (yield from claim(cluster, broker, generation))


def collect(
    place: QueuePlace, epoch: Epoch, positions: bool, before_ms: int
) -> Procedure[list[Listed]]:
    """Delete the garbage of a queue: what no manifest named. Nothing of one that a later master has
    not taken over yet, whose manifest would seem to be of that master's. FencedError."""
    writer = TierQueueWriter(place, epoch, positions, TierLimits())
    manifest = yield from writer.open()
    if manifest is not None and writer.is_of_earlier_term(manifest):
        return []
    if writer.is_of_earlier_term((yield from writer.fence())):
        return []
    yield from writer.collect(before_ms)
    return (yield from writer.sweep(before_ms))
