"""A store that is made from the tier: what it has is what consumers are given of the tier."""

import random

from stratamq.errors import StrataError
from stratamq.files.port import Files
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_layout import PHYSICAL_OFFSET_POSITION
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.manifests import open_queue
from stratamq.tier.reading.pull import pull
from stratamq.tier.reading.verify import queues_of
from stratamq.tier.restoring.restoring import Restore
from stratamq_torture.simulated.model import Violation
from stratamq_torture.tier.broker_log import BLANK_BYTES, SEGMENT_BYTES
from stratamq_torture.tier.process import BROKER, CLUSTER

Messages = dict[tuple[str, int, int], bytes]


def check_restored(storage: Storage, chance: random.Random) -> int:
    """Restore the tier, of which every queue was verified: how many messages. Violation."""
    expected = _readable(storage)
    disk = SimulatedDisk()
    files = disk.files()
    work = Restore(CLUSTER, BROKER, files, 1, chance, lambda restored: None, SEGMENT_BYTES)
    if not run(queues_of(CLUSTER, BROKER), storage):
        return 0
    try:
        run(work.run(storage.positions), storage)
    except StrataError as error:
        raise Violation("restore", str(error)) from error
    found = _in_log(files)
    for key in expected.keys() | found.keys():
        if found.get(key) != expected.get(key):
            what = "another message" if key in found and key in expected else "in one of both"
            raise Violation("restore", f"{key} is {what}, the tier and the restored log")
    return len(found)


def _readable(storage: Storage) -> Messages:
    """What consumers are given, of each queue behind its last hole."""
    found: Messages = {}
    for place in run(queues_of(CLUSTER, BROKER), storage):
        opened = run(open_queue(place), storage)
        if opened is None:
            continue
        queue = opened.queue
        at = max([queue.minimum, *(end for _, end in queue.holes)])
        while at < queue.end:
            answer = run(pull(queue, at, 32), storage)
            for message in answer.messages:
                key = place.topic, place.queue_id, message.offset
                found[key] = _without_place(bytes(message.record))
            at = answer.next
    return found


def _in_log(files: Files) -> Messages:
    found: Messages = {}
    for entry in files.list(COMMIT_LOG):
        file = files.open(f"{COMMIT_LOG}/{entry.name}")
        data = file.read(0, file.size)
        file.close()
        at = 0
        while at + BLANK_BYTES < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            if not size:
                break
            value = decode(data[at : at + size])
            if not isinstance(value, Frame):
                break
            key = value.topic, value.queue_id, value.queue_offset
            if key in found:
                raise Violation("restore", f"{key} is twice in the restored log")
            found[key] = _without_place(data[at : at + size])
            at += size
    return found


def _without_place(record: bytes) -> bytes:
    """But for its place in a log, and the checksum that covers it."""
    sealed = b"__CRC32#" in record[-PROPERTY_CRC_BYTES:]
    end = len(record) - (PROPERTY_CRC_BYTES if sealed else 0)
    return record[:PHYSICAL_OFFSET_POSITION] + record[PHYSICAL_OFFSET_POSITION + 8 : end]
