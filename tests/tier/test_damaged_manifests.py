"""A manifest that is damaged, or another queue's, is refused with the place and the reason."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stratamq.errors import CorruptRecordError
from stratamq.formats.tier_manifest import Manifest, decode_manifest, encode_manifest
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.driver.calls import Load
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.contents import totals
from stratamq.tier.reading.manifests import (
    load_manifest,
    load_manifests,
    load_readable,
    open_queue,
)
from stratamq.tier.reading.verify import verify_queue
from stratamq.tier.writing.claim import claim
from stratamq.tier.writing.collecting import garbage_of
from stratamq.tier.writing.orphans import listed
from stratamq.tier.writing.queue_writer import TierQueueWriter
from tests.tier.queue_model import PLACE, TIME, QueueModel
from tests.tier.test_queue_writer import SMALL, fill, writer

SECOND = replace(PLACE, queue_id=4)
HUGE = 10**30
BEHIND = QueueModel(570, tuple(range(20)))
BOTH = pytest.mark.parametrize("positions", [True, False], ids=["positions", "parts"])

Edit = Callable[[dict[str, Any]], None]


def stored(positions: bool) -> MemoryStorage:
    """Queue offsets 500 to 560 and, behind a gap, 570 to 590."""
    storage = MemoryStorage(positions)
    ours = fill(storage)
    run(ours.commit(BEHIND.batch(570, 580), TIME), storage)
    run(ours.commit(BEHIND.batch(580, 590), TIME), storage)
    return storage


def put(storage: MemoryStorage, place: QueuePlace, raw: bytes) -> None:
    storage.objects[place.manifest] = raw


def raw_of(storage: MemoryStorage, place: QueuePlace = PLACE) -> bytes:
    return bytes(storage.perform(Load(place.manifest))[0])


def field(*path: str | int, to: object) -> Edit:
    """The value at that path of the document becomes another."""

    def edit(document: Any) -> None:
        *above, last = path
        for name in above:
            document = document[name]
        document[last] = to

    return edit


IMPOSSIBLE = {
    "minimum beyond 64 bits": field("minimum", to=HUGE),
    "minimum behind the end": field("minimum", to=591),
    "negative minimum": field("minimum", to=-1),
    "minimum that is a text": field("minimum", to="500"),
    "minimum that is a fraction": field("minimum", to=500.5),
    "minimum that is true": field("minimum", to=True),
    "queue id beyond 32 bits": field("queueId", to=1 << 31),
    "negative queue id": field("queueId", to=-1),
    "negative revision": field("revision", to=-1),
    "epoch beyond 64 bits": field("epoch", 0, to=1 << 63),
    "topic that is a number": field("topic", to=7),
    "otherLog beyond 64 bits": field("otherLog", to=HUGE),
    "base beyond 64 bits": field("records", 0, "base", to=HUGE),
    "negative size": field("records", 0, "size", to=-1),
    "size that reaches into the next segment": field("records", 0, "size", to=1 << 40),
    "end beyond 64 bits": field("records", -1, "size", to=(1 << 63) - 1),
    "time beyond 64 bits": field("records", 0, "begin", to=HUGE),
    "negative count": field("records", -1, "count", to=-1),
    "more offsets than can be counted": field("records", -1, "count", to=1 << 62),
    "offsets of the next segment": field("records", 0, "count", to=89),
    "part beyond its segment": field("records", -1, "parts", -1, 1, to=1 << 40),
    "part of offsets beyond its segment's": field("records", -1, "parts", -1, 5, to=100),
    "negative checksum": field("records", -1, "parts", -1, 2, to=-1),
    "parts that are missing": field("records", -1, "parts", to=[]),
    "part without most of its fields": field("records", -1, "parts", -1, to=[0, 1, 2, 3, 4, 5, 6]),
    "gap that goes on for ever": field("holes", 0, 1, to=1 << 62),
    "gap over messages": field("holes", 0, 0, to=500),
    "gap that ends before it begins": field("holes", 0, 1, to=1),
    "gap without an end": field("holes", 0, to=[560, 5]),
    "dropped beyond 64 bits": field("dropped", to=[["a", HUGE]]),
    "records that are no list": field("records", to=7),
}
IMPOSSIBLE_UNITS = {
    "units beyond 64 bits": field("units", -1, 0, to=(1 << 62) * 20),
    "units behind the records": field("units", -1, 1, to=20 * 100),
    "no units": field("units", to=[]),
    "half a unit": field("units", 0, to=[0, 10, 0, 0]),
    "units over units": field("units", 0, 1, to=20 * 100),
}


def require_refused(storage: MemoryStorage, edit: Edit) -> None:
    document = json.loads(raw_of(storage))
    edit(document)
    with pytest.raises(CorruptRecordError, match=r"no manifest of a tier: .+"):
        decode_manifest(json.dumps(document).encode())


@BOTH
@pytest.mark.parametrize("edit", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_manifest_of_impossible_numbers_is_damaged(positions, edit):
    require_refused(stored(positions), edit)


@pytest.mark.parametrize("edit", IMPOSSIBLE_UNITS.values(), ids=IMPOSSIBLE_UNITS)
def test_a_manifest_of_impossible_units_is_damaged(edit):
    require_refused(stored(positions=True), edit)


@BOTH
def test_parts_are_objects_only_where_there_are_no_positions(positions):
    require_refused(stored(positions), field("positions", to=not positions))


@BOTH
@pytest.mark.parametrize("name", ["cluster", "epoch", "minimum", "records", "units", "holes"])
def test_a_field_that_is_missing_is_named(positions, name):
    document = json.loads(raw_of(stored(positions)))
    del document[name]
    with pytest.raises(CorruptRecordError, match=f"'{name}' is missing"):
        decode_manifest(json.dumps(document).encode())


def test_a_manifest_that_only_keeps_earlier_writers_away_is_whole():
    storage = MemoryStorage(positions=True)
    assert run(writer(storage).fence(), storage) == decode_manifest(raw_of(storage))


# --- by its place ---


def torn(storage: MemoryStorage) -> str:
    put(storage, PLACE, raw_of(storage)[:-20])
    return "no manifest of a tier: "


def impossible(storage: MemoryStorage) -> str:
    document = json.loads(raw_of(storage))
    put(storage, PLACE, json.dumps(document | {"minimum": HUGE}).encode())
    return f"{HUGE} is not in 0 to"


def foreign(**whose: object) -> Callable[[MemoryStorage], str]:
    def edit(storage: MemoryStorage) -> str:
        manifest: Manifest = replace(decode_manifest(raw_of(storage)), **whose)
        put(storage, PLACE, encode_manifest(manifest))
        return (
            f"the manifest of another queue, {manifest.queue_id} of {manifest.topic} of the broker "
            f"{manifest.cluster}/{manifest.broker}"
        )

    return edit


DAMAGE = {
    "torn": torn,
    "impossible": impossible,
    "another queue's": foreign(queue_id=4),
    "another topic's": foreign(topic="orders"),
    "another broker's": foreign(broker="broker-b"),
    "another cluster's": foreign(cluster="Second"),
}
DAMAGED = pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)


def require_named(message: str, reason: str) -> None:
    assert message.startswith(f"{PLACE.manifest} (queue 3 of %RETRY%orders): ")
    assert reason in message


@BOTH
@DAMAGED
def test_whoever_reads_a_damaged_manifest_is_told_whose_it_is(positions, damage):
    storage = stored(positions)
    reason = damage(storage)
    readers = load_manifest(PLACE), load_manifests([PLACE]), open_queue(PLACE)
    for reading in readers:
        with pytest.raises(CorruptRecordError) as raised:
            run(reading, storage)
        require_named(raised.value.message, reason)
    (fault,) = run(verify_queue(PLACE), storage).faults
    require_named(fault, reason)
    (unreadable,) = run(totals(PLACE.cluster, PLACE.broker), storage).unreadable
    require_named(unreadable, reason)


@BOTH
@DAMAGED
def test_beside_a_damaged_manifest_those_of_other_queues_are_read(positions, damage):
    storage = stored(positions)
    epoch = run(claim(PLACE.cluster, PLACE.broker, 1), storage)
    other = TierQueueWriter(SECOND, epoch, positions, SMALL)
    run(other.fence(), storage)
    damage(storage)
    damaged, whole = run(load_readable([PLACE, SECOND]), storage)
    assert isinstance(damaged, CorruptRecordError)
    assert whole == other.manifest


@BOTH
@DAMAGED
def test_nothing_is_added_to_a_queue_of_a_damaged_manifest_and_nothing_is_deleted(
    positions, damage
):
    storage = stored(positions)
    reason = damage(storage)
    before = dict(storage.objects)
    found = run(garbage_of(PLACE, run(listed(PLACE), storage), 1 << 62), storage)
    assert not found
    require_named(found.fault, reason)
    ours = TierQueueWriter(PLACE, (9, 9), positions, SMALL)
    steps = (
        ours.commit(QueueModel(590, (7,)).batch(590, 591), TIME),
        ours.take_over(500, TIME),
        ours.tidy(1 << 62),
        ours.expire(1 << 62, TIME),
    )
    for step in steps:
        with pytest.raises(CorruptRecordError) as raised:
            run(step, storage)
        require_named(raised.value.message, reason)
    assert storage.objects == before


@BOTH
@pytest.mark.parametrize(
    "damaged",
    [
        lambda rows: [[1]],
        lambda rows: rows[:-1],
        lambda rows: rows[1:],
        lambda rows: [*rows[:-1], [*rows[-1][:5], rows[-1][5] - 1, *rows[-1][6:]]],
    ],
    ids=["cut row", "last part missing", "first part missing", "message missing"],
)
def test_a_list_of_parts_that_is_damaged_is_named(positions, damaged):
    storage = stored(positions)
    details = run(load_manifest(PLACE), storage).records[0].details
    storage.objects[details] = json.dumps(damaged(json.loads(storage.objects[details]))).encode()
    with pytest.raises(CorruptRecordError, match=r"\.json: no list of parts: ") as raised:
        run(open_queue(PLACE), storage)
    assert raised.value.message.startswith(f"{details}: ")
