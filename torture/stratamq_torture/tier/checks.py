"""What must be in the tier: the log's messages, byte for byte, each once, and nothing else."""

from collections.abc import Iterable, Iterator

from stratamq.formats.frame_verify import damage_in
from stratamq.formats.message_status import PullStatus
from stratamq.formats.property_crc import PROPERTY_CRC_BYTES
from stratamq.formats.tier_progress import Progress
from stratamq.formats.tier_records import physical_offset_of
from stratamq.tier.containers.place import QueuePlace
from stratamq.tier.containers.queue import TierQueue
from stratamq.tier.driver.calls import Procedure
from stratamq.tier.driver.memory import MemoryStorage
from stratamq.tier.driver.storage import run
from stratamq.tier.reading.key_index import KeyIndex, KeyQuestion, query
from stratamq.tier.reading.manifests import ManifestQueue, open_queue
from stratamq.tier.reading.pull import pull
from stratamq.tier.reading.verify import queues_of, verify_queue
from stratamq.tier.writing.collecting import garbage_of
from stratamq.tier.writing.intake import QueueKey
from stratamq.tier.writing.orphans import listed
from stratamq_torture.simulated.model import Violation
from stratamq_torture.tier.broker_log import BrokerLog, Stored
from stratamq_torture.tier.process import BROKER, CLUSTER

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
    memory: MemoryStorage, log: BrokerLog, progress: Progress
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
        if offset in lost and message.place < log.minimum:
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
