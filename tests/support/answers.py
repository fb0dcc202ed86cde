"""What a running broker reports of its store, in the lines of `tests/interop/rocketmq`'s `dump`.

The questions are those `Dump.java` asks; its README explains every kind of line. Lines are yielded
in its order, so that the answers of RocketMQ and of our services can be compared line by line.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stratamq.api.v1 import commitlog_pb2, common_pb2, dispatcher_pb2, index_pb2
from stratamq.formats import frame as frames
from stratamq.formats.delay import dispatch_tags_code
from stratamq.formats.frame import Frame
from stratamq.formats.frame_check import FrameOutcome, check
from stratamq.formats.hosts import decode_host
from stratamq.formats.index_layout import INDEX_HEADER, IndexHeader
from stratamq.formats.properties import split_keys
from tests.support.brokers import Broker

Line = dict[str, Any]
Placed = tuple[int, Frame, bytes]

PAGE = 32
TAGGED_PAGE = 8
FOREVER_MS = (1 << 63) - 1
_AT_A_TIME = 64


def answers(broker: Broker) -> list[Line]:
    """Everything but `time` and `query` lines, which need the questions of someone else, and the
    length of index files."""
    status = broker.log.GetStatus(commitlog_pb2.GetStatusRequest())
    lines = [
        {"kind": "recovery", "maxPhyOffset": status.appended_offset},
        {
            "kind": "store",
            "minPhyOffset": status.minimum_offset,
            "maxPhyOffset": status.appended_offset,
            "dispatched": True,
            "writeable": status.writable,
        },
    ]
    lines += frame_lines(broker)
    for queue in queues(broker):
        lines += _queue_lines(broker, queue)
    lines += index_lines(broker)
    return lines


# --- the log ---


def log_bytes(broker: Broker) -> Iterator[tuple[int, bytes]]:
    """(start, bytes) of each segment between the log's minimum and its end."""
    status = broker.log.GetStatus(commitlog_pb2.GetStatusRequest())
    start, content = status.minimum_offset, bytearray()
    if start == status.appended_offset:
        return
    for piece in broker.log.ReadRange(commitlog_pb2.ReadRangeRequest(start_offset=start)):
        assert piece.offset == start + len(content)
        if piece.offset > start and piece.offset % status.segment_bytes == 0:
            yield start, bytes(content)
            start, content = piece.offset, bytearray()
        content += piece.data
    yield start, bytes(content)


def places(broker: Broker) -> Iterator[tuple[int, Frame | None, bytes]]:
    """Every frame (and None for every blank) of the log in order, with its offset and bytes."""
    for start, content in log_bytes(broker):
        position = 0
        while position < len(content):
            result = check(content, position)
            assert result.outcome in (FrameOutcome.GOOD, FrameOutcome.BLANK), (
                start + position,
                result,
            )
            if result.outcome is FrameOutcome.BLANK:
                yield start + position, None, content[position:]
                break
            frame = frames.decode(content, position)
            assert isinstance(frame, Frame)
            yield start + position, frame, content[position : position + result.size]
            position += result.size


def placed_frames(broker: Broker) -> list[Placed]:
    return [(place, frame, raw) for place, frame, raw in places(broker) if frame is not None]


def frame_lines(broker: Broker) -> Iterator[Line]:
    for place, frame, raw in places(broker):
        if frame is not None:
            yield frame_line(place, frame, raw)
        elif len(raw) > 8:  # Dump.java does not look at the last 8 bytes of a file
            yield {"kind": "frame", "phyOffset": place, "ok": True, "size": 0}


def frame_line(place: int, frame: Frame, raw: bytes) -> Line:
    properties = frame.properties
    return {
        "kind": "frame",
        "phyOffset": place,
        "ok": True,
        "size": frame.total_size,
        "magic": f"{frame.magic:08X}",
        "topic": frame.topic,
        "queueId": frame.queue_id,
        "queueOffset": frame.queue_offset,
        "tagsCode": dispatch_tags_code(
            frame.topic, properties.get("TAGS"), properties.get("DELAY"), frame.store_timestamp_ms
        ),
        "storeTimestamp": frame.store_timestamp_ms,
        # RocketMQ has no keys when the property is missing, empty ones without properties.
        "keys": properties.get("KEYS") if frame.properties_raw else "",
        "uniqKey": properties.get("UNIQ_KEY"),
        "sysFlag": frame.sys_flag,
        "preparedTransactionOffset": frame.prepared_transaction_offset,
        "sha256": hashlib.sha256(raw).hexdigest(),
    }


# --- queues ---


def queues(broker: Broker) -> list[dispatcher_pb2.QueueInfo]:
    """Queues with content by topic and number, topics as Java orders texts."""
    answer = broker.dispatcher.ListQueues(dispatcher_pb2.ListQueuesRequest())
    found = [queue for queue in answer.queues if queue.max_offset > 0]
    return sorted(found, key=lambda queue: (queue.topic.encode("utf-16-be"), queue.queue_id))


def _queue_lines(broker: Broker, queue: dispatcher_pb2.QueueInfo) -> Iterator[Line]:
    topic, number = queue.topic, queue.queue_id
    minimum, maximum = queue.min_offset, queue.max_offset
    where = {"topic": topic, "queueId": number}
    yield {"kind": "queue", **where, "minOffset": minimum, "maxOffset": maximum}
    tags: set[int] = set()
    offset = minimum
    while offset < maximum:
        page = pull(broker, topic, number, offset, PAGE)
        yield _pull_line(where, offset, PAGE, page)
        units = _units(broker, topic, number, offset, page.count)
        for unit, raw in zip(units, split(page.frames), strict=True):
            line = _message_line(topic, number, unit, raw)
            tags.add(line["tagsCode"])
            yield line
        if page.next_offset <= offset:
            break
        offset = page.next_offset
    probes = {-1, minimum - 1, minimum, maximum - 1, maximum, maximum + 1, maximum + 1000}
    for probe in sorted(probes):
        yield _pull_line(where, probe, 1, pull(broker, topic, number, probe, 1))
    for tag in sorted(tags):
        yield _filtered_line(broker, where, tag, minimum, maximum)


def pull(
    broker: Broker, topic: str, queue_id: int, offset: int, count: int, codes: Iterable[int] = ()
) -> dispatcher_pb2.PullResponse:
    """At once, with RocketMQ's limits of bytes and messages."""
    return broker.dispatcher.Pull(
        dispatcher_pb2.PullRequest(
            topic=topic, queue_id=queue_id, offset=offset, max_messages=count, tags_codes=codes
        )
    )


def split(content: bytes) -> Iterator[bytes]:
    """Single frames out of adjacent frames."""
    position = 0
    while position < len(content):
        size = int.from_bytes(content[position : position + 4])
        assert 4 <= size <= len(content) - position
        yield content[position : position + size]
        position += size


def _pull_line(where: Line, offset: int, count: int, page: dispatcher_pb2.PullResponse) -> Line:
    return {
        "kind": "pull",
        **where,
        "offset": offset,
        "maxNums": count,
        "status": _status(page),
        "nextBeginOffset": page.next_offset,
        "minOffset": page.min_offset,
        "maxOffset": page.max_offset,
        "count": page.count,
        "bytes": len(page.frames),
    }


def _status(page: dispatcher_pb2.PullResponse) -> str:
    name = common_pb2.GetMessageStatus.Name(page.status)
    return name.removeprefix("GET_MESSAGE_STATUS_")


def _units(
    broker: Broker, topic: str, queue_id: int, offset: int, count: int
) -> list[dispatcher_pb2.QueueUnit]:
    request = dispatcher_pb2.ListUnitsRequest(
        topic=topic, queue_id=queue_id, offset=offset, count=count
    )
    units = list(broker.dispatcher.ListUnits(request).units)
    assert [unit.queue_offset for unit in units] == list(range(offset, offset + count))
    return units


def _message_line(topic: str, queue_id: int, unit: dispatcher_pb2.QueueUnit, raw: bytes) -> Line:
    frame = frames.decode(raw)
    assert isinstance(frame, Frame)
    body = frame.body
    digest = hashlib.sha256(body).hexdigest()
    return {
        "kind": "message",
        "topic": topic,
        "queueId": queue_id,
        "at": unit.queue_offset,
        "frameTopic": frame.topic,
        "frameQueueId": frame.queue_id,
        "queueOffset": frame.queue_offset,
        "phyOffset": frame.physical_offset,
        "size": len(raw),
        "storeSize": frame.total_size,
        "cqPhyOffset": unit.physical_offset,
        "cqSize": unit.size,
        "tagsCode": unit.tags_code,
        "sysFlag": frame.sys_flag,
        "flag": frame.flag,
        "bodyCRC": frame.body_crc,
        "bornTimestamp": frame.born_timestamp_ms,
        "bornHost": str(decode_host(frame.born_host)),
        "storeTimestamp": frame.store_timestamp_ms,
        "storeHost": str(decode_host(frame.store_host)),
        "reconsumeTimes": frame.reconsume_times,
        "preparedTransactionOffset": frame.prepared_transaction_offset,
        "bodyLength": len(body),
        **({"bodySha256": digest} if len(body) > 64 else {"body": body.hex()}),
        "properties": frame.properties,
        "msgId": frame.message_id,
        "frameSha256": hashlib.sha256(raw).hexdigest(),
    }


def _filtered_line(broker: Broker, where: Line, tag: int, minimum: int, maximum: int) -> Line:
    found: list[int] = []
    pages: list[str] = []
    offset = minimum
    while offset < maximum:
        page = pull(broker, where["topic"], where["queueId"], offset, TAGGED_PAGE, [tag])
        found += [int.from_bytes(raw[28:36]) for raw in split(page.frames)]
        pages.append(f"{_status(page)}@{page.next_offset}")
        if page.next_offset <= offset:
            break
        offset = page.next_offset
    return {
        "kind": "filtered",
        **where,
        "tagsCode": tag,
        "maxNums": TAGGED_PAGE,
        "pages": pages,
        "phyOffsets": found,
    }


def offsets_by_time(broker: Broker, asked: list[tuple[str, int, int]], boundary: int) -> list[int]:
    """One offset for each (topic, queue, time)."""
    requests = [
        dispatcher_pb2.GetOffsetByTimeRequest(
            topic=topic, queue_id=queue_id, timestamp_ms=timestamp, boundary=boundary
        )
        for topic, queue_id, timestamp in asked
    ]
    method = broker.dispatcher.GetOffsetByTime
    return [answer.offset for answer in _in_flight(method, requests)]


# --- the index ---


def index_lines(broker: Broker) -> list[Line]:
    """The service's report of its files, without the length: the newest may be in memory only."""
    status = broker.index.GetIndexStatus(index_pb2.GetIndexStatusRequest())
    return [
        {
            "kind": "index",
            "number": number,
            "beginTimestamp": file.begin_timestamp_ms,
            "endTimestamp": file.end_timestamp_ms,
            "beginPhyOffset": file.begin_physical_offset,
            "endPhyOffset": file.end_physical_offset,
            "hashSlotCount": file.hash_slot_count,
            "indexCount": file.index_count,
        }
        for number, file in enumerate(status.files)
    ]


def index_lines_on_disk(root: Path) -> list[Line]:
    """The `index` lines of a stopped broker: every file's length and header."""
    lines: list[Line] = []
    for number, path in enumerate(sorted((root / "index").iterdir())):
        content = path.read_bytes()
        header = IndexHeader(*INDEX_HEADER.unpack_from(content))
        lines.append(
            {
                "kind": "index",
                "number": number,
                "length": len(content),
                "beginTimestamp": header.begin_timestamp_ms,
                "endTimestamp": header.end_timestamp_ms,
                "beginPhyOffset": header.begin_phy_offset,
                "endPhyOffset": header.end_phy_offset,
                "hashSlotCount": header.hash_slot_count,
                "indexCount": header.index_count,
            }
        )
    return lines


def query_answers(
    broker: Broker, requests: list[index_pb2.QueryKeyRequest]
) -> list[index_pb2.QueryKeyResponse]:
    return _in_flight(broker.index.QueryKey, requests)


def keys_of(frame: Frame) -> list[str]:
    """What an index file gets of a message, in order (spec 7.2)."""
    properties = frame.properties
    unique = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    return unique + split_keys(properties.get("KEYS", ""))


def _in_flight(method: Any, requests: list[Any]) -> list[Any]:
    """Answers in order, several questions at a time."""
    done: list[Any] = []
    for start in range(0, len(requests), _AT_A_TIME):
        futures = [method.future(request) for request in requests[start : start + _AT_A_TIME]]
        done += [future.result() for future in futures]
    return done
