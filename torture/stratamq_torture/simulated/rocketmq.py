"""RocketMQ opens what is left: what it would keep must hold everything that is demanded, and what
it does with a directory must not confuse us afterwards.
"""

from typing import TYPE_CHECKING

from stratamq.files.port import Files
from stratamq.files.simulated_inode import Inode
from stratamq.files.simulated_tree import Directory
from stratamq.formats.checkpoint import (
    CHECKPOINT_FIELDS_BYTES,
    CHECKPOINT_FILE_BYTES,
    Checkpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from stratamq.formats.file_names import offset_name, parse_offset_name
from stratamq.formats.frame import encode, encode_blank
from stratamq.formats.frame_layout import fits
from stratamq.formats.frame_verify import damage_in
from stratamq.formats.hosts import encode_host
from stratamq.formats.properties import TAGS, encode_properties
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES, encode_queue_unit
from stratamq_torture.simulated.model import Fate, Grade, Message, expected_unit
from stratamq_torture.simulated.producers import BORN, QUEUES, TOPICS
from stratamq_torture.simulated.rocketmq_rules import Opened, QueueKey, Store, open_store
from stratamq_torture.simulated.world import Situation
from stratamq_torture.trial import Violation

if TYPE_CHECKING:
    from stratamq_torture.simulated.broker import Broker

LOCK_TEXT = b"lock"
LOG, CONSUME_QUEUE = "commitlog", "consumequeue"


def check(broker: "Broker") -> None:
    """No process runs: what would RocketMQ make of this?"""
    if broker.log.running or broker.foreign:
        return
    store = look(broker)
    if not store.segments:
        return
    opened = open_store(store, broker.queue_file_bytes)
    model = broker.model
    if model.torn:
        broker.met(Situation.ROCKETMQ_AFTER_LOSS)
    grade = Grade.DURABLE if model.torn else Grade.CACHED
    for message in model.demanded(grade):
        if opened.frames.get(message.offset) != message.frame:
            raise Violation("rocketmq", f"{message} would be lost to RocketMQ")
        if not message.counted or broker.unsure_queues:
            continue
        queue = opened.queues.get((message.topic, message.queue_id))
        if queue is not None and queue.poisoned:
            continue
        unit = queue.unit(message.queue_offset) if queue is not None else None
        if unit is None or (unit.physical_offset, unit.size) != (
            message.offset,
            len(message.frame),
        ):
            raise Violation("rocketmq", f"{message}: RocketMQ's unit would be {unit}")


def look(broker: "Broker") -> Store:
    """The directory as RocketMQ's `load` sees it. Violation when it would refuse to load."""
    tree = broker.disk.tree
    segments = _family(broker, LOG, broker.segment_bytes)
    queues: dict[QueueKey, dict[int, bytes]] = {}
    top = tree.find(CONSUME_QUEUE)
    for topic, below in sorted(getattr(top, "entries", {}).items()):
        for queue_id in sorted(getattr(below, "entries", {})):
            path = f"{CONSUME_QUEUE}/{topic}/{queue_id}"
            files = _family(broker, path, broker.queue_file_bytes)
            if files:
                queues[topic, int(queue_id)] = files
    raw = tree.find("checkpoint")
    known = isinstance(raw, Inode) and raw.size >= CHECKPOINT_FIELDS_BYTES
    checkpoint = decode_checkpoint(bytes(raw.cache)) if isinstance(raw, Inode) and known else None
    return Store(segments, queues, checkpoint or Checkpoint(), tree.find("abort") is not None)


def _family(broker: "Broker", path: str, file_bytes: int) -> dict[int, bytes]:
    directory = broker.disk.tree.find(path)
    if not isinstance(directory, Directory):
        return {}
    found: dict[int, bytes] = {}
    for name, node in sorted(directory.entries.items()):
        offset = parse_offset_name(name)
        if offset is None or not isinstance(node, Inode) or node.size != file_bytes:
            raise Violation("rocketmq", f"{path}/{name}: RocketMQ refuses the directory")
        found[offset] = bytes(node.cache)
    return found


# --- it does not only look ---


def use(broker: "Broker") -> str:
    """RocketMQ starts, takes a few messages if the log's end is clean, and stops or is killed.

    Not while there are pages whose write-back has failed: it would not write them again, and
    after its clean stop neither would we.
    """
    chance, disk = broker.chance, broker.disk
    disk.clear_faults()
    disk.capacity_bytes = broker.settings.capacity_bytes
    store = look(broker)
    opened = open_store(store, broker.queue_file_bytes)
    kept = _genuine(broker, opened)
    if any(inode.failed for inode in disk.tree.inodes()):
        return "not on a disk that has failed"
    if not store.segments or kept is None:
        return "there is nothing for it, or a frame that it alone would keep"
    broker.met(Situation.ROCKETMQ_RAN)
    files = disk.files(name="rocketmq")
    files.lock("lock", LOCK_TEXT).close()
    if files.entry("abort") is None:
        files.create("abort", 0, sparse=True)
    for base in sorted(store.segments):
        if base > opened.end:
            files.unlink(f"{LOG}/{offset_name(base)}")
    writer = _Writer(broker, files, opened.end)
    sent: list[Message] = []
    sound = not opened.dirty and _is_sound(opened, kept)
    if sound:
        writer.put_units(opened, kept)
        following = {key: queue.end_index for key, queue in opened.queues.items()}
        sent = [writer.put(following) for _ in range(chance.randint(0, 3))]
    stops = sound and chance.random() < 0.5
    if stops:
        files.sync_all()
        _write_checkpoint(files, broker)
        files.unlink("abort")
        files.sync_directory("")
    for message in (*kept.values(), *sent):
        message.raise_to(Grade.DURABLE if stops else Grade.CACHED)
    files.kill()
    broker.foreign = broker.unsure_queues = True
    how = "stops" if stops else "is killed"
    return f"opens up to {opened.end}, appends {', '.join(map(str, sent)) or 'nothing'}, {how}"


def _genuine(broker: "Broker", opened: Opened) -> dict[int, Message] | None:
    """What it keeps, by place. None when it would keep a frame that was torn where it does not
    look: we keep what it kept, and report to its reader that it is damaged."""
    kept = {}
    for offset, raw in opened.frames.items():
        if damage_in(raw):
            return None
        try:
            kept[offset] = broker.model.observe(offset, raw, "rocketmq")
        except Violation:
            return None
    return kept


def _is_sound(opened: Opened, kept: dict[int, Message]) -> bool:
    """Its queues are those of the log: it continues with the right numbers."""
    following: dict[QueueKey, int] = {}
    for _, message in sorted(kept.items()):
        if message.counted:
            following[message.topic, message.queue_id] = message.queue_offset + 1
    known = {key: queue.end_index for key, queue in opened.queues.items() if queue.end_index}
    return known == following


def _write_checkpoint(files: Files, broker: "Broker") -> None:
    newest = max((m.store_ms for m in broker.model.messages if m.fate is Fate.STORED), default=0)
    if files.entry("checkpoint") is None:
        files.create("checkpoint", CHECKPOINT_FILE_BYTES)
    file = files.open("checkpoint", writable=True)
    file.write(0, encode_checkpoint(Checkpoint(newest, newest, 0))[:CHECKPOINT_FIELDS_BYTES])
    file.flush()
    file.close()


class _Writer:
    """Appends to log and queues as RocketMQ does. Nothing is synced."""

    def __init__(self, broker: "Broker", files: Files, end: int) -> None:
        self._broker = broker
        self._files = files
        self._end = end

    def put(self, following: dict[QueueKey, int]) -> Message:
        broker, model = self._broker, self._broker.model
        chance, size = broker.chance, broker.segment_bytes
        key = chance.choice(TOPICS), chance.randrange(QUEUES)
        tag = chance.choice(("tag-a", "tag-b"))
        message = model.new(*key, chance.choice((40, 200)), {TAGS: tag})
        queue_offset = following.get(key, 0)
        following[key] = queue_offset + 1
        newest = max((m.store_ms for m in model.messages), default=0)

        def frame_at(offset: int) -> bytes:
            return encode(
                topic=message.topic.encode(),
                body=message.body,
                born_host=encode_host(BORN),
                store_host=encode_host(BORN),
                properties=encode_properties(message.properties),
                queue_id=message.queue_id,
                queue_offset=queue_offset,
                physical_offset=offset,
                store_timestamp_ms=max(newest, broker.clock.wall_ms()),
            )

        left = size - self._end % size
        if not fits(len(frame_at(0)), left):
            self._write(encode_blank(left))
            self._end += left
        raw = frame_at(self._end)
        self._write(raw)
        message.fate = Fate.STORED
        message.acknowledged = message.unguarded = True
        model.observe(self._end, raw, "rocketmq")
        self._put_unit(message)
        self._end += len(raw)
        return message

    def _write(self, raw: bytes) -> None:
        size = self._broker.segment_bytes
        base = self._end - self._end % size
        path = f"{LOG}/{offset_name(base)}"
        if self._files.entry(path) is None:
            self._files.create(path, size)
        file = self._files.open(path, writable=True)
        file.write(self._end - base, raw)
        file.close()

    def put_units(self, opened: Opened, kept: dict[int, Message]) -> None:
        """What its recovery dispatched goes to the files, too."""
        for queue in opened.queues.values():
            for unit in queue.units():
                message = kept.get(unit.physical_offset)
                if message is not None and len(message.frame) == unit.size:
                    self._put_unit(message)

    def _put_unit(self, message: Message) -> None:
        file_bytes = self._broker.queue_file_bytes
        unit = expected_unit(message)
        place = message.queue_offset * QUEUE_UNIT_BYTES
        base = place - place % file_bytes
        path = f"{CONSUME_QUEUE}/{message.topic}/{message.queue_id}/{offset_name(base)}"
        if self._files.entry(path) is None:
            self._files.create(path, file_bytes, sparse=True)
        file = self._files.open(path, writable=True)
        file.write(place - base, encode_queue_unit(unit.physical_offset, unit.size, unit.tags_code))
        file.close()
