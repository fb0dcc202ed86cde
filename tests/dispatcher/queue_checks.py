"""What queues must be, derived from the log: in memory, on disk, and for a consumer."""

from stratamq_dispatcher.consume_queue import read_units
from stratamq_dispatcher.pull import PullAnswer, PullLimits, PullQuery, TagFilter

from stratamq.files.port import EntryKind, Files
from stratamq.formats.file_names import offset_name
from stratamq.formats.javahash import tags_code
from stratamq.formats.message_status import PullStatus
from stratamq.formats.queue_unit import PRE_BLANK, encode_queue_unit
from tests.dispatcher.followed_log import Broker, Stored
from tests.support.disks import read_file

Key = tuple[str, int]


def pull(
    broker: Broker,
    topic: str,
    queue_id: int,
    offset: int,
    most: int = 32,
    max_bytes: int = 0,
    tag_filter: TagFilter | None = None,
    limits: PullLimits | None = None,
) -> PullAnswer:
    engine = broker.engine
    query = PullQuery(topic, queue_id, offset, most, max_bytes, tag_filter)
    plan = engine.plan_pull(query, limits or PullLimits())
    return plan if isinstance(plan, PullAnswer) else plan.run(engine.hot_log())


def frames_of(answer: PullAnswer) -> list[bytes]:
    data, frames = b"".join(answer.pieces), []
    while data:
        size = int.from_bytes(data[:4], "big")
        frames.append(data[:size])
        data = data[size:]
    return frames


def consume(broker: Broker, topic: str, queue_id: int) -> list[bytes]:
    """All frames of a queue, as a consumer reads them."""
    offset = pull(broker, topic, queue_id, -1).next_offset
    frames: list[bytes] = []
    while True:
        answer = pull(broker, topic, queue_id, offset)
        if answer.status is not PullStatus.FOUND:
            assert answer.status in (
                PullStatus.OFFSET_OVERFLOW_ONE,
                PullStatus.NO_MESSAGE_IN_QUEUE,
            ), answer
            return frames
        frames += frames_of(answer)
        offset = answer.next_offset


def unit_of(message: Stored) -> bytes:
    return encode_queue_unit(
        message.offset, len(message.frame), tags_code(message.tags) if message.tags else 0
    )


def queues_of(messages: list[Stored]) -> dict[Key, list[Stored]]:
    queues: dict[Key, list[Stored]] = {}
    for message in messages:
        queues.setdefault((message.topic, message.queue_id), []).append(message)
    return queues


def check_listing(broker: Broker) -> None:
    """Every queue is listed, among all and among those of its topic."""
    queues = broker.engine.queues
    listed, following = queues.page("", 0, 0, len(queues) + 1)
    assert (listed, following) == (list(queues), 0)
    topics = {queue.topic for queue in listed}
    assert sum(len(queues.of_topic(topic)) for topic in topics) == len(listed)


def check_queues(broker: Broker, upto: int | None = None) -> None:
    """Every queue holds exactly the log's messages (those that end at or below `upto`)."""
    messages = [m for m in broker.log.messages if upto is None or m.end <= upto]
    expected = queues_of(messages)
    engine = broker.engine
    check_listing(broker)
    for queue in engine.queues:
        there = expected.pop((queue.topic, queue.queue_id), [])
        if not there:
            assert queue.minimum(engine.queues.open_files, engine.followed.minimum) == queue.end
            continue
        assert queue.end == there[-1].queue_offset + 1, (queue.topic, queue.queue_id)
        index = there[0].queue_offset
        for message in there:
            data = read_units(queue, engine.queues.open_files, index, 1)
            assert data == unit_of(message), (queue.topic, queue.queue_id, index)
            index += 1
    assert not expected
    if engine.followed.serving:
        for key, there in queues_of(messages).items():
            assert consume(broker, *key) == [message.frame for message in there]


def check_files(broker: Broker, upto: int | None = None) -> None:
    """The files hold the units of the log's messages, pre-blank units before, zeros behind."""
    messages = [m for m in broker.log.messages if upto is None or m.end <= upto]
    units_per_file = broker.engine.queues.geometry.units_per_file
    files = broker.engine_files
    expected: dict[str, bytes] = {}
    for (topic, queue_id), there in queues_of(messages).items():
        first, end = there[0].queue_offset, there[-1].queue_offset + 1
        start = first - first % units_per_file
        blanks = PRE_BLANK * (first - start)
        data = blanks + b"".join(map(unit_of, there))
        data += bytes(-end % units_per_file * 20)
        for at in range(0, len(data), units_per_file * 20):
            name = offset_name(start * 20 + at)
            expected[f"consumequeue/{topic}/{queue_id}/{name}"] = data[
                at : at + units_per_file * 20
            ]
    assert contents(files) == expected


def contents(files: Files, directory: str = "consumequeue") -> dict[str, bytes]:
    """Every file below a directory."""
    found: dict[str, bytes] = {}
    for entry in files.list(directory):
        path = f"{directory}/{entry.name}"
        if entry.kind is EntryKind.DIRECTORY:
            found |= contents(files, path)
        else:
            found[path] = read_file(files, path)
    return found
