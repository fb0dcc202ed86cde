"""What must hold after every start of the log, and when a broker has come to rest.

log        everything demanded is there, byte for byte, once, in order; nothing came back, was
           invented or incomplete; queue offsets are dense; store times never go back
queues     every unit points at its message; nothing is missing; none points at anything else
index      every key of every message leads to it, and to nothing else
"""

from typing import TYPE_CHECKING

from stratamq_dispatcher.consume_queue import read_units

from stratamq.formats.queue_unit import decode_queue_unit
from stratamq_torture.simulated.consumers import has_key
from stratamq_torture.simulated.model import Fate, Grade, Message, expected_unit
from stratamq_torture.simulated.world import Situation
from stratamq_torture.trial import Violation

if TYPE_CHECKING:
    from stratamq_torture.simulated.broker import Broker

QueueKey = tuple[str, int]
KEYS_ASKED = 40


def check_log(broker: "Broker") -> None:
    """After a start of the log, before anything else happens: what it holds becomes the truth."""
    engine, model = broker.log.engine, broker.model
    minimum, end = engine.offsets.minimum, engine.offsets.appended
    broker.segment_bytes = size = engine.segment_bytes
    found = _messages(broker, minimum, end, "log")
    disk = broker.disk
    behind = {base: disk.shown(base)[max(0, end - base) :] for base in disk.segments()}
    if broker.audits and any(
        base + size > end and bytes(view).strip(b"\0") for base, view in behind.items()
    ):
        raise Violation("tail", f"bytes can be read behind the log's end at {end}")
    there = {message.number for message in found}
    _check_demands(broker, minimum, there)
    if broker.foreign and minimum > 0:
        # Of queues whose messages were all deleted RocketMQ may have forgotten the numbers.
        model.log, model.rebased = [], True
    history = [m for m in model.log if m.offset < minimum and m.number not in there] + found
    _check_groups(broker, history)
    following = _check_order(history, model.rebased)
    _check_queue_table(broker, following)
    _take_as_truth(broker, history, following)


def remember_deleted(broker: "Broker", before: int, minimum: int) -> None:
    """The log has let go of [before, minimum): its messages may vanish from now on, or not."""
    model = broker.model
    if minimum <= before:
        return
    known = {message.number for message in model.log}
    found = _messages(broker, before, minimum, "deletion")
    model.log += [message for message in found if message.number not in known]
    model.deleted_below = max(model.deleted_below, minimum)


def _messages(broker: "Broker", start: int, end: int, where: str) -> list[Message]:
    """Those in [start, end), each checked against what was sent."""
    frames = broker.disk.frames(start, end, broker.segment_bytes)
    found = [broker.model.observe(offset, raw, where) for offset, raw in frames]
    if len({message.number for message in found}) != len(found):
        raise Violation("twice", f"{where}: a message is in the log twice")
    return found


def _check_demands(broker: "Broker", minimum: int, there: set[int]) -> None:
    model = broker.model
    if minimum > model.deleted_below:
        raise Violation("deleted", f"the log begins at {minimum}, which was not allowed")
    grade = Grade.DURABLE if model.torn else Grade.CACHED
    for message in model.demanded(grade):
        if message.number not in there:
            why = "acknowledged" if message.acknowledged else "durable"
            why = "seen by consumers" if message.seen else why
            raise Violation("lost", f"{message} was {why}, and is not in the log")


def _check_groups(broker: "Broker", history: list[Message]) -> None:
    model = broker.model
    for group, count in model.groups(history).items():
        if count == model.group_sizes[group] or group in model.broken_groups:
            continue
        if not model.torn:
            raise Violation("half", f"{count} of a batch's {model.group_sizes[group]} are there")
        model.broken_groups.add(group)


def _check_order(history: list[Message], rebased: bool) -> dict[QueueKey, int]:
    """The next offset of each queue."""
    following: dict[QueueKey, int] = {}
    newest_ms = 0
    for message in history:
        if message.store_ms < newest_ms:
            raise Violation("time", f"{message} was stored before what is in front of it")
        newest_ms = message.store_ms
        if message.counted:
            key = message.topic, message.queue_id
            expected = following.get(key, message.queue_offset if rebased else 0)
            if message.queue_offset != expected:
                raise Violation(
                    "dense", f"{message} has number {message.queue_offset}, not {expected}"
                )
            following[key] = expected + 1
    return following


def _check_queue_table(broker: "Broker", following: dict[QueueKey, int]) -> None:
    engine = broker.log.engine
    known = {key: number for key, number in engine.appender.queues.table.items() if number}
    if broker.model.rebased:
        known = {key: number for key, number in known.items() if key in following}
    if known != following:
        raise Violation("dense", f"queues continue at {known}, and hold {following}")


def _take_as_truth(
    broker: "Broker", history: list[Message], following: dict[QueueKey, int]
) -> None:
    """What is there is durable from now on; what is not never comes back."""
    model = broker.model
    kept = {message.number for message in history}
    gone = [m for m in model.messages if m.frame and m.fate is Fate.STORED and m.number not in kept]
    if gone and model.torn:
        broker.met(Situation.LOST_TAIL)
    for message in model.messages:
        if message.number in kept:
            message.fate = Fate.STORED
            message.raise_to(Grade.DURABLE)
        elif message.fate in (Fate.OPEN, Fate.STORED):
            if message.frame:
                model.gone_from.add(message.offset)
            message.fate = Fate.GONE
            message.grade = Grade.NONE
            message.seen = False
    if model.torn:
        broker.consumers.lose(following)
        broker.uncut = {room.name for room in broker.followers if room.running}
    model.log = history
    broker.flushed = max(message.end for message in history) if history else 0
    model.torn = False
    broker.cache_lies = broker.foreign = False


def check_at_rest(broker: "Broker") -> None:
    """Everything runs and nothing is left to do: the followers have what the log has."""
    engine = broker.log.engine
    minimum, end = engine.offsets.minimum, engine.offsets.appended
    found = _messages(broker, minimum, end, "log")
    for message in found:
        if message.fate is Fate.OPEN:
            raise Violation("answer", f"{message} is stored, and was never answered")
    if broker.dispatcher.engine is not None:
        check_queues(broker, found)
    if broker.index.engine is not None:
        check_index(broker, found)


def check_queues(broker: "Broker", found: list[Message]) -> None:
    """Every queue holds the units of its messages in the log, and nothing behind them."""
    engine = broker.dispatcher.engine
    if not engine.followed.serving:
        raise Violation("queue", f"the dispatcher does not serve: {engine.followed.stopped_reason}")
    expected: dict[QueueKey, list[Message]] = {}
    for message in found:
        if message.counted:
            expected.setdefault((message.topic, message.queue_id), []).append(message)
    for key, messages in expected.items():
        queue = engine.queues.get(*key)
        if queue is None:
            raise Violation("queue", f"there is no queue {key[0]}/{key[1]}")
        if queue.end != messages[-1].queue_offset + 1:
            raise Violation(
                "queue", f"{key[0]}/{key[1]} ends at {queue.end}, not behind {messages[-1]}"
            )
        # What was announced as deleted may be back after a crash, in the log or in its queue.
        least = max(engine.followed.minimum, broker.model.deleted_below)
        demanded = [message for message in messages if message.offset >= least]
        begin = queue.minimum(engine.queues.open_files, engine.followed.minimum)
        last = demanded[0].queue_offset if demanded else queue.end
        if not messages[0].queue_offset <= begin <= last:
            raise Violation("queue", f"{key[0]}/{key[1]} begins at {begin}, not at {last}")
        for message in messages:
            if message.queue_offset < begin:
                continue
            raw = read_units(queue, engine.queues.open_files, message.queue_offset, 1)
            unit = decode_queue_unit(raw)
            if unit != expected_unit(message):
                raise Violation("queue", f"the unit of {message} is {unit}")
        broker.consumers.pull_all(engine, key)
    for queue in engine.queues:
        key = queue.topic, queue.queue_id
        if (
            key not in expected
            and queue.has_messages
            and queue.end_offset > engine.followed.minimum
        ):
            raise Violation("queue", f"{key[0]}/{key[1]} has messages that the log has not")


def check_index(broker: "Broker", found: list[Message]) -> None:
    """Every key is asked for."""
    engine = broker.index.engine
    if not engine.followed.serving:
        raise Violation("query", f"the index does not serve: {engine.stop_reason}")
    keys = {
        (message.topic, key)
        for message in found
        for name in ("KEYS", "UNIQ_KEY")
        for key in message.properties.get(name, "").split()
        if has_key(message, key)
    }
    for topic, key in sorted(keys)[:KEYS_ASKED]:
        broker.consumers.ask_for(topic, key)
    while broker.index.engine is not None and broker.index.scheduler.pending:
        broker.act(broker.index, broker.index.work)
