"""What is in a storage: brokers, the objects of each queue, and what of each the tier has.

A listing is read in pages; the objects of one queue are in memory at a time.
"""

from dataclasses import dataclass, field

from stratamq.errors import CorruptRecordError
from stratamq.formats.tier_manifest import Epoch, Manifest
from stratamq.formats.tier_names import INDEX_TOPIC, cluster_folder
from stratamq.formats.tier_progress import QueueName, decode_writer
from stratamq.tier.containers.place import QueuePlace, broker_folder, writer_path
from stratamq.tier.driver.calls import AbsentError, Folders, List, Listed, Load, Procedure, ask
from stratamq.tier.reading.manifests import load_manifest
from stratamq.tier.reading.queue_list import load_queue_list, missing, missing_queues

_PAGE = 1000
_HASH_CHARACTERS = 9
"""The hash's length in a cluster's folder, before the cluster's name."""

QueueObjects = tuple[QueuePlace | None, list[Listed]]
"""None: they belong to no queue of messages."""


def brokers() -> Procedure[list[tuple[str, str]]]:
    """(cluster, broker) of all that have objects, by name."""
    found = []
    for folder in (yield from ask(Folders(""))):
        cluster = folder[_HASH_CHARACTERS:]
        if cluster_folder(cluster) == folder:
            names = yield from ask(Folders(folder))
            found += [(cluster, broker) for broker in names]
    return sorted(found)


def load_writer(cluster: str, broker: str) -> Procedure[Epoch | None]:
    """The epoch of the writer that claimed the broker's tier last; None: none did.
    CorruptRecordError."""
    try:
        raw, _ = yield from ask(Load(writer_path(cluster, broker)))
    except AbsentError:
        return None
    return decode_writer(raw)


class BrokerObjects:
    """All objects of a broker, queue by queue: `following` until it returns None."""

    def __init__(self, cluster: str, broker: str) -> None:
        self._cluster = cluster
        self._broker = broker
        self._root = broker_folder(cluster, broker)
        self._page: list[Listed] = []
        self._after = ""
        self._more = True

    def following(self) -> Procedure[QueueObjects | None]:
        """The objects of the next queue, or some that belong to none."""
        found: list[Listed] = []
        place: QueuePlace | None = None
        while True:
            while self._page:
                key = self._place_of(self._page[0].path)
                if found and key != place:
                    return place, found
                place = key
                found.append(self._page.pop(0))
            if not self._more:
                return (place, found) if found else None
            self._page = yield from ask(List(self._root, self._after, _PAGE))
            self._more = len(self._page) == _PAGE
            if self._page:
                self._after = self._page[-1].path

    def _place_of(self, path: str) -> QueuePlace | None:
        names = path.removeprefix(f"{self._root}/").split("/")
        if len(names) < 3 or names[0] == INDEX_TOPIC:
            return None
        queue_id = names[1]
        if not (queue_id.isascii() and queue_id.isdigit() and str(int(queue_id)) == queue_id):
            return None
        return QueuePlace(self._cluster, self._broker, names[0], int(queue_id))


@dataclass(slots=True)
class BrokerTotals:
    """What the manifests of a broker name, and what its folder has. Times are 0 where there is no
    message. `lost`: messages that are not there, `put_back` of which were. `unreadable`: a sentence
    for each manifest that cannot be read, or is missing."""

    cluster: str
    broker: str
    writer: Epoch | None = None
    queues: int = 0
    messages: int = 0
    bytes: int = 0
    lost: int = 0
    put_back: int = 0
    first_ms: int = 0
    last_ms: int = 0
    objects: int = 0
    object_bytes: int = 0
    dropped: int = 0
    unreadable: list[str] = field(default_factory=list)

    def add(self, manifest: Manifest) -> None:
        segments = [segment for segment in manifest.records if segment.count]
        self.queues += bool(manifest.records)
        self.messages += sum(segment.count for segment in segments)
        self.bytes += sum(segment.size for segment in segments)
        self.lost += sum(hole.end - max(hole.start, manifest.minimum) for hole in manifest.holes)
        self.put_back += sum(hole.end - hole.start for hole in manifest.lost)
        self.dropped += len(manifest.dropped)
        if segments:
            first = min(segment.begin_ms for segment in segments)
            self.first_ms = min(first, self.first_ms) if self.first_ms else first
            self.last_ms = max(self.last_ms, *(segment.end_ms for segment in segments))


def totals(cluster: str, broker: str) -> Procedure[BrokerTotals]:
    """One request for each thousand objects, and one for each queue."""
    found = BrokerTotals(cluster, broker)
    try:
        found.writer = yield from load_writer(cluster, broker)
    except CorruptRecordError as error:
        found.unreadable.append(error.message)
    listed: set[QueueName] = set()
    try:
        listed = yield from load_queue_list(cluster, broker)
    except CorruptRecordError as error:
        found.unreadable.append(error.message)
    there = []
    listing = BrokerObjects(cluster, broker)
    while (group := (yield from listing.following())) is not None:
        place, objects = group
        found.objects += len(objects)
        found.object_bytes += sum(one.size for one in objects)
        if place is None:
            continue
        try:
            manifest = yield from load_manifest(place)
        except CorruptRecordError as error:
            there.append(place)
            found.unreadable.append(error.message)
            continue
        if manifest is not None:
            found.add(manifest)
            if manifest.records:
                there.append(place)
    gone = missing_queues(cluster, broker, listed, there)
    found.unreadable += [missing(place).message for place in gone]
    return found
