"""Which queues a tier has had: one whose manifest is gone, or has nothing any more, is missed.

A queue is listed when its first messages are in the tier, and before the log may delete them. It
stays in the list; its manifest stays as well, whatever leaves it.
"""

from collections.abc import Collection, Iterable

from stratamq.errors import CorruptRecordError
from stratamq.formats.tier_progress import QueueName, QueuePage, decode_queue_page
from stratamq.tier.containers.place import QueuePlace, cluster_folder, queues_path
from stratamq.tier.driver.calls import AbsentError, Folders, Load, Procedure, Version, ask

MISSING = "missing"
"""The reason where a manifest is gone, or empty."""


def brokers_of(cluster: str) -> Procedure[list[str]]:
    """Names of the brokers that the tier has, in order; none for an unknown cluster."""
    return sorted((yield from ask(Folders(cluster_folder(cluster)))))


def load_queue_page(
    cluster: str, broker: str, number: int
) -> Procedure[tuple[QueuePage, Version] | None]:
    """None: there is no such page. CorruptRecordError, which names the object."""
    path = queues_path(cluster, broker, number)
    try:
        raw, version = yield from ask(Load(path))
    except AbsentError:
        return None
    try:
        return decode_queue_page(raw), version
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{path}: {error.message}", 0, error.reason) from error


def load_queue_list(cluster: str, broker: str) -> Procedure[set[QueueName]]:
    """A request for each page, and one more. CorruptRecordError."""
    found: set[QueueName] = set()
    number = 0
    while (page := (yield from load_queue_page(cluster, broker, number))) is not None:
        found.update(page[0].queues)
        number += 1
    return found


def missing_queues(
    cluster: str, broker: str, listed: Collection[QueueName], there: Iterable[QueuePlace]
) -> list[QueuePlace]:
    """Queues of the list, in order, that are not among those that are `there`: that have a manifest
    with messages. Load `listed` before looking which are there: a queue is listed after its first
    commit, so that one that comes meanwhile is in `there` alone."""
    known = {(place.topic, place.queue_id) for place in there}
    return [QueuePlace(cluster, broker, *name) for name in sorted(set(listed) - known)]


def missing(place: QueuePlace) -> CorruptRecordError:
    """What is said of such a queue."""
    return CorruptRecordError(
        f"{place.manifest} (queue {place.queue_id} of {place.topic}): the manifest is gone, or "
        "empty, and the tier has had messages of the queue: restore the object",
        0,
        MISSING,
    )
