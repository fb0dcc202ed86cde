"""What must be in the tier: the log's messages, byte for byte, each once, and nothing else; in the
tier, in a store that is made from it, and with the storage as one of its copies again."""

import random
from collections.abc import Iterable, Iterator, Mapping

from stratamq.errors import StrataError
from stratamq.files.port import Files
from stratamq.files.simulated import SimulatedDisk
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_layout import PHYSICAL_OFFSET_POSITION
from stratamq.formats.frame_verify import damage_in
from stratamq.formats.message_status import PullStatus
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.formats.tier_manifest import MANIFEST_NAME
from stratamq.formats.tier_names import INDEX_TOPIC
from stratamq.formats.tier_progress import PROGRESS_NAME, WRITER_NAME, TierProgress, queues_name
from stratamq.formats.tier_records import physical_offset_of
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.key_index import KeyIndex, KeyQuestion, query
from stratamq.tier.reading.manifests import ManifestQueue, open_queue
from stratamq.tier.reading.pull import pull
from stratamq.tier.reading.verify import queues_of, verify_queue
from stratamq.tier.restoring.restoring import Restore
from stratamq.tier.writing.collecting import garbage_of
from stratamq.tier.writing.intake import QueueKey
from stratamq.tier.writing.orphans import listed
from stratamq_torture.tier.broker_log import BLANK_BYTES, SEGMENT_BYTES, BrokerLog, Stored
from stratamq_torture.tier.process import BROKER, CLUSTER
from stratamq_torture.trial import Violation

TIERED = ("orders", "%RETRY%billing", "short")
LEFT_OUT = "private"
SHORT, SHORT_MS = "short", 3_600_000


def require_there(memory: MemoryStorage, messages: Iterable[Stored], log: BrokerLog) -> None:
    """Violation unless the tier has them all, by its manifests: their local copies go."""
    found: dict[QueueKey, ManifestQueue | None] = {}
    for message in messages:
        if message.key[0] not in TIERED or (message.key, message.queue_offset) in log.gone:
            continue
        if log.is_purged(message.key, message.queue_offset):
            continue
        if message.key not in found:
            found[message.key] = run(open_queue(_place(message.key)), memory)
        queue = found[message.key]
        at = message.queue_offset
        ends = queue.manifest.end_offset if queue is not None else 0
        if queue is None or at >= ends or queue.queue.behind_hole(at) != at:
            raise Violation("hold", f"{message.key}: {at} is deleted, and is not in the tier")


def faults_of(memory: MemoryStorage, place: QueuePlace, *, told: bool) -> list[str]:
    """`told`: that messages are lost is none."""
    faults = run(verify_queue(place), memory).faults
    return [fault for fault in faults if not (told and fault.endswith("are lost"))]


def check_whole(memory: MemoryStorage, log: BrokerLog, now_ms: int, *, told: bool = False) -> int:
    """Everything of the log is there and nothing else: how many messages. `told`: the tier was put
    back; a reader of what is not there is told so. Violation."""
    stored: dict[QueueKey, dict[int, Stored]] = {}
    for message in log.messages:
        stored.setdefault(message.key, {})[message.queue_offset] = message
    for place in run(queues_of(CLUSTER, BROKER), memory):
        if place.topic not in TIERED:
            raise Violation("foreign", f"{place.path} does not belong in the tier")
        stored.setdefault((place.topic, place.queue_id), {})
    messages = 0
    for key, expected in sorted(stored.items()):
        if key[0] in TIERED:
            messages += _check_queue(memory, key, expected, log, now_ms, told)
    return messages


def undecided(
    memory: MemoryStorage, log: BrokerLog, progress: TierProgress
) -> Iterator[tuple[QueueKey, int]]:
    """Messages that leave the tier with those of another history, which are in one part with them:
    those of the segments that have any, and of the last, which is still written."""
    shared = log.shared_end(progress)
    first: dict[QueueKey, int] = {}
    for place in run(queues_of(CLUSTER, BROKER), memory):
        found = run(open_queue(place), memory)
        if found is not None:
            key = place.topic, place.queue_id
            mixed = (
                segment.first
                for segment, parts in found.parts
                if any(part.place >= shared for part in parts)
            )
            first[key] = next(mixed, found.parts[-1][0].first)
    for message in log.messages:
        if message.queue_offset >= first.get(message.key, 1 << 62):
            yield message.key, message.queue_offset


def _check_queue(
    memory: MemoryStorage,
    key: QueueKey,
    expected: dict[int, Stored],
    log: BrokerLog,
    now_ms: int,
    told: bool,
) -> int:
    place = _place(key)
    found = run(open_queue(place), memory)
    seen: set[int] = set()
    lost: set[int] = set()
    minimum = end = 0
    if found is not None:
        minimum, end = found.queue.minimum, found.queue.end
        seen = set(_checked(memory, key, found.queue, expected))
        if faults := faults_of(memory, place, told=told):
            raise Violation("verify", f"{key}: {faults[0]}")
        for start, stop in found.queue.holes:
            if told and (start, stop) in found.queue.lost:
                lost.update(range(start, stop))
                continue
            for offset in range(max(start, minimum), stop):
                if (key, offset) not in log.gone and not log.is_purged(key, offset):
                    raise Violation("hole", f"{key}: {offset} is recorded as lost, and was not")
    for offset, message in expected.items():
        if offset in seen or (key, offset) in log.gone or log.is_purged(key, offset):
            continue
        if offset in lost and message.place < max(log.minimum, log.inherited_minimum):
            continue
        expired = key[0] == SHORT and message.time_ms < now_ms - SHORT_MS
        if not (expired and offset < minimum):
            raise Violation("lost", f"{key}: {offset} of [{minimum}, {end}) is not in the tier")
    return len(seen)


def _checked(
    memory: MemoryStorage, key: QueueKey, queue: TierQueue, expected: dict[int, Stored]
) -> Iterator[int]:
    offset, before = queue.minimum, -1
    while offset < queue.end:
        if queue.is_lost(offset):
            offset = queue.behind_hole(offset)
            continue
        answer = run(pull(queue, offset, 32), memory)
        if answer.status is not PullStatus.FOUND:
            behind = queue.behind_hole(offset)
            if behind == offset:
                raise Violation("lost", f"{key}: {offset} answers {answer.status}")
            offset = behind
            continue
        for message in answer.messages:
            if message.offset <= before:
                raise Violation("twice", f"{key}: {message.offset} behind {before}")
            before = message.offset
            original = expected.get(message.offset)
            if original is None:
                raise Violation("foreign", f"{key}: {message.offset} is not in the log")
            if not _is_same(original, bytes(message.record)):
                raise Violation("bytes", f"{key}: {message.offset} is another message")
            yield message.offset
        offset = answer.next


def _is_same(original: Stored, placed: bytes) -> bool:
    wanted = original.record
    kept = len(wanted) - (PROPERTY_CRC_BYTES if original.sealed else 0)
    return (
        len(placed) == len(wanted)
        and placed[:28] == wanted[:28]
        and placed[36:kept] == wanted[36:kept]
        and damage_in(placed, sealed=original.sealed) == ""
        and physical_offset_of(placed) >= 0
    )


def check_keys(
    memory: MemoryStorage, index: KeyIndex, messages: Iterable[Stored], log: BrokerLog
) -> int:
    """Each message of the tier is found by its unique key, once: how many. Violation."""
    count = 0
    queues: dict[QueueKey, TierQueue | None] = {}
    for message in messages:
        topic = message.key[0]

        def opened(queue_id: int, topic: str = topic) -> Procedure[TierQueue | None]:
            key = topic, queue_id
            if key not in queues:
                found = yield from open_queue(_place(key))
                queues[key] = found.queue if found is not None else None
            return queues[key]

        answer = run(query(index, opened, KeyQuestion(topic, message.unique_key, 4)), memory)
        offsets = [(hit.frame.queue_id, hit.frame.queue_offset) for hit in answer.hits]
        queue = run(opened(message.key[1]), memory)
        at = message.queue_offset
        is_there = queue is not None and queue.minimum <= at < queue.end and not queue.is_lost(at)
        wanted = [(message.key[1], message.queue_offset)]
        gone = (message.key, message.queue_offset) in log.gone
        gone = gone or log.is_purged(message.key, message.queue_offset)
        if offsets != (wanted if is_there else []) and not (gone and not offsets):
            raise Violation("key", f"{message.unique_key} of {message.key}: {offsets}")
        count += 1
    return count


def check_nothing_left(memory: MemoryStorage) -> None:
    """Violation: an object of a queue is named by no manifest, after everything was collected."""
    for place in run(queues_of(CLUSTER, BROKER), memory):
        garbage = run(garbage_of(place, run(listed(place), memory), 1 << 62), memory)
        if garbage:
            raise Violation("garbage", f"{place.path}: {garbage.unnamed} {garbage.dropped}")


def _place(key: QueueKey) -> QueuePlace:
    return QueuePlace(CLUSTER, BROKER, *key)


ENDS = "356"
"""The seeds in which it happens end in one of these."""
MAX_COPIES = 4
_COPY, _PUT_BACK = 0.15, 0.06


class Copies:
    """Draws by itself, so that what else a seed does is as without it."""

    def __init__(self, seed: int, memory: MemoryStorage) -> None:
        self.put_back: set[str] = set()
        """Kinds of what was put back so far."""
        self._chance = random.Random(f"copies {seed}")
        self._memory = memory
        self._happens = str(seed)[-1] in ENDS
        self._copies: list[dict[str, bytes]] = []

    def step(self) -> str:
        """What has been done: "" for nothing."""
        if not self._happens:
            return ""
        drawn = self._chance.random()
        # One that has nothing is refused by name (`written_tier.require_new`).
        is_tier = any(path.endswith(PROGRESS_NAME) for path in self._memory.objects)
        if drawn < _COPY and is_tier:
            self._copies = [*self._copies, dict(self._memory.objects)][-MAX_COPIES:]
        elif self._copies and drawn < _COPY + _PUT_BACK:
            return self._put_back(self._chance.choice(self._copies))
        return ""

    def _put_back(self, copy: Mapping[str, bytes]) -> str:
        if self._chance.random() < 0.5:
            self._memory.objects = dict(copy)
            self.put_back.add("tier")
            return "a tier put back to an older copy"
        now = self._memory.objects
        names = (MANIFEST_NAME, PROGRESS_NAME, WRITER_NAME, queues_name(0))
        changed = sorted(
            path
            for path in now
            if path.endswith(names) and INDEX_TOPIC not in path and copy.get(path) != now[path]
        )
        self._chance.shuffle(changed)
        for path in changed:
            is_manifest = path.endswith(MANIFEST_NAME)
            if path not in copy and not is_manifest:
                continue
            before = dict(now)
            if path in copy:
                now[path] = copy[path]
            else:
                del now[path]
            if self._is_whole():
                kind = path.rpartition("/")[2]
                self.put_back.add(kind)
                return f"an object put back to an older copy: {kind}"
            self._memory.objects = before
            now = before
        return ""

    def _is_whole(self) -> bool:
        """Whether the manifests name what is there: a part that has left cannot be put back by its
        manifest, and reading it is an error."""
        places = run(queues_of(CLUSTER, BROKER), self._memory)
        return not any(
            "are lost" not in fault
            for place in places
            for fault in run(verify_queue(place), self._memory).faults
        )


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
