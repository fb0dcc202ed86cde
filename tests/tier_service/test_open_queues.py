"""The parts of queues that are read take a bounded number of bytes, however long the queues are."""

from dataclasses import replace

from stratamq_tier.fetching import OpenQueues

from stratamq.formats.tier_manifest import Manifest, ManifestPart, RecordSegment
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.manifests import queue_of

PLACE = QueuePlace("c", "b", "t", 0)


def queue(parts: int):
    listed = tuple(ManifestPart(n, 1, 0, 0, n, 1, 0, 0, f"part-{n}") for n in range(parts))
    segment = RecordSegment(0, parts, 0, 0, 0, parts, listed)
    manifest = Manifest("c", "b", "t", 0, 1, (1, 1), False, 0, (segment,))
    return run(queue_of(PLACE, manifest), MemoryStorage(positions=False))


def test_queues_with_few_parts_are_kept_and_a_long_one_takes_the_place_of_many():
    kept = OpenQueues(1_000_000)
    for number in range(100):
        kept.put(("short", number), queue(1))
    assert len(kept) == 100
    kept.put(("long", 0), queue(1_000))
    assert 1 < len(kept) < 50
    assert kept.bytes <= 1_000_000


def test_the_queue_that_was_not_used_for_longest_gives_way():
    kept = OpenQueues(250_000)
    kept.put(("t", 0), queue(100))
    kept.put(("t", 1), queue(100))
    assert kept.use(("t", 0)) is not None
    kept.put(("t", 2), queue(100))
    assert [number for number in range(3) if kept.get(("t", number))] == [0, 2]


def test_one_queue_is_kept_whatever_its_size_and_its_next_state_takes_its_place():
    kept = OpenQueues(10_000)
    long = queue(100)
    kept.put(("t", 0), long)
    kept.put(("t", 0), replace(long))
    size = kept.bytes
    kept.put(("t", 1), queue(100))
    assert (len(kept), kept.bytes, kept.get(("t", 0))) == (1, size, None)
