"""What `tier dump` prints of a tier: the lines of the harness with which the real RocketMQ is asked
(`tests/interop/rocketmq-tier/README.md`), kinds, fields and order, so that both can be compared."""

import hashlib
from collections.abc import Iterator
from typing import Any

from stratamq.formats.frame import Frame, decode
from stratamq.formats.hosts import decode_host
from stratamq.formats.properties import KEYS, UNIQ_KEY
from stratamq.formats.tier_metadata import NO_TIME, SegmentRecord
from stratamq.formats.tier_names import SegmentType
from stratamq.tier.driver.storage import Storage, run
from stratamq.tier.reading.keys import UploadedIndex, items_of_key, messages_of_key
from stratamq.tier.reading.pull import TierPull, pull
from stratamq.tier.reading.records import TierMessage
from stratamq.tier.reading.rocketmq import OpenedQueue, OpenedTier
from stratamq.tier.reading.times import offset_by_time

Row = dict[str, Any]
_BATCH = 32
_AT_THE_EDGES = 3
_QUERY_LIMIT = 1000


class TierDump:
    """The lines of an opened tier, in the order in which they are printed."""

    def __init__(self, tier: OpenedTier, storage: Storage, broker: str) -> None:
        self._tier = tier
        self._storage = storage
        self._broker = broker
        self._keys: dict[str, set[str]] = {}

    def queues(self) -> Iterator[Row]:
        return (queue_row(opened, self._broker) for opened in self._tier.queues)

    def indexes(self) -> Iterator[Row]:
        return index_rows(self._tier)

    def lines(self, queries: bool = True) -> Iterator[Row]:
        """Queues with their messages, answers and times; the index; what is found by each key."""
        for opened in self._tier.queues:
            yield queue_row(opened, self._broker)
            times = []
            for message in self._messages(opened):
                frame = decode(message.record, verify_body=False)
                if isinstance(frame, Frame):
                    times.append(frame.store_timestamp_ms)
                    self._keys.setdefault(frame.topic, set()).update(_keys_of(frame))
                    yield _message_row(frame, message)
            yield from self._answers(opened)
            yield from self._times(opened, times)
        yield from self.indexes()
        for topic in sorted(self._keys, key=_java_order) if queries else ():
            for key in (*sorted(self._keys[topic], key=_java_order), "no-such-key"):
                yield self._query(topic, key)

    def _messages(self, opened: OpenedQueue) -> Iterator[TierMessage]:
        offset = opened.queue.minimum
        while offset < opened.queue.end:
            found = run(pull(opened.queue, offset, _BATCH), self._storage)
            yield from found.messages
            offset = found.next

    def _answers(self, opened: OpenedQueue) -> Iterator[Row]:
        queue = opened.queue
        edges = {
            edge + distance for edge in (queue.minimum, queue.end) for distance in range(-2, 3)
        }
        for offset in sorted(edges):
            found = run(pull(queue, offset, _AT_THE_EDGES), self._storage)
            yield _answer_row(opened, offset, found)

    def _times(self, opened: OpenedQueue, times: list[int]) -> Iterator[Row]:
        if not times:
            return
        last = len(times) - 1
        places = {
            min(last, max(0, place)) for place in (0, 1, last // 4, last // 2, last - 1, last)
        }
        times_of_places = {times[place] + distance for place in places for distance in (-1, 0, 1)}
        for time in sorted(times_of_places):
            lower, upper = (
                run(offset_by_time(opened.queue, time, boundary), self._storage)
                for boundary in (False, True)
            )
            yield {
                "kind": "offsetByTime",
                **_queue_fields(opened),
                "time": time,
                "lower": lower,
                "upper": upper,
            }

    def _query(self, topic: str, key: str) -> Row:
        files = {}
        for index in self._tier.indexes:
            items = run(items_of_key(index, topic, key), self._storage)
            if len(items):
                files[str(index.begin_ms)] = [list(item) for item in items.tolist()]
        answer = run(
            messages_of_key(
                self._tier.indexes,
                self._tier.of_topic(topic),
                self._tier.topic_ids()[topic],
                topic,
                key,
                _QUERY_LIMIT,
            ),
            self._storage,
        )
        places = [
            [hit.queue_id, hit.frame.queue_offset, hit.frame.physical_offset] for hit in answer.hits
        ]
        places.sort(key=str)
        return {"kind": "query", "topic": topic, "key": key, "files": files, "messages": places}


def queue_row(opened: OpenedQueue, broker: str) -> Row:
    """What the metadata and the chains have of a queue."""
    queue = opened.queue
    logs = opened.segments[SegmentType.COMMIT_LOG]
    units = opened.segments[SegmentType.CONSUME_QUEUE]
    begins = [chain[0].begin_ms for chain in (logs, units) if chain]
    ends = [segment.end_ms for segment in queue.records.segments]
    return {
        "kind": "queue",
        **_queue_fields(opened),
        "path": f"{broker}/{queue.topic}/{queue.queue_id}",
        "topicId": opened.topic_id,
        "initialised": bool(units),
        "minOffset": queue.minimum,
        "commitOffset": queue.end,
        "appendOffset": queue.end,
        "firstMessageOffset": queue.minimum if queue.records else -1,
        "commitLogMin": logs[0].base if logs else 0,
        "commitLogCommit": logs[-1].base + logs[-1].size if logs else 0,
        "minStoreTime": max((begin for begin in begins if begin != NO_TIME), default=-1),
        "maxStoreTime": ends[-1] if ends else -1,
        "commitLogSegments": [_segment_fields(record) for record in logs],
        "consumeQueueSegments": [_segment_fields(record) for record in units],
    }


def index_rows(tier: OpenedTier) -> Iterator[Row]:
    """The uploaded segments, then every index file, uploaded and local."""
    for record in tier.index_records:
        yield {
            "kind": "indexSegment",
            "base": record.base,
            "size": record.size,
            "begin": record.begin_ms,
            "end": record.end_ms,
        }
    for index in tier.indexes:
        yield {
            "kind": "indexFile",
            "begin": index.begin_ms,
            "end": index.end_ms,
            "state": "UPLOAD" if isinstance(index, UploadedIndex) else "UNSEALED",
            "items": index.item_count,
        }


def _queue_fields(opened: OpenedQueue) -> Row:
    return {"topic": opened.queue.topic, "queueId": opened.queue.queue_id}


def _segment_fields(record: SegmentRecord) -> list[int]:
    return [record.base, record.size, record.begin_ms, record.end_ms, record.status]


def _answer_row(opened: OpenedQueue, offset: int, found: TierPull) -> Row:
    return {
        "kind": "get",
        **_queue_fields(opened),
        "offset": offset,
        "max": _AT_THE_EDGES,
        "status": found.status.name,
        "count": len(found.messages),
        "next": found.next,
        "min": opened.queue.minimum,
        "maxOffset": opened.queue.end,
    }


def _message_row(frame: Frame, message: TierMessage) -> Row:
    return {
        "kind": "message",
        "topic": frame.topic,
        "queueId": frame.queue_id,
        "queueOffset": frame.queue_offset,
        "physicalOffset": frame.physical_offset,
        "size": frame.total_size,
        "sysFlag": frame.sys_flag,
        "flag": frame.flag,
        "bornTime": frame.born_timestamp_ms,
        "bornHost": _host(frame.born_host),
        "storeTime": frame.store_timestamp_ms,
        "storeHost": _host(frame.store_host),
        "reconsumeTimes": frame.reconsume_times,
        "preparedOffset": frame.prepared_transaction_offset,
        "bodyCrc": frame.body_crc & 0xFFFFFFFF,
        "bodyBytes": len(frame.body),
        "bodySha256": hashlib.sha256(frame.body).hexdigest(),
        "recordSha256": hashlib.sha256(message.record).hexdigest(),
        "properties": frame.properties,
        "tagsCode": message.tags_code,
    }


def _host(raw: bytes) -> str:
    host = decode_host(raw)
    return f"{host.address}:{host.port}"


def _keys_of(frame: Frame) -> set[str]:
    properties = frame.properties
    unique, keys = properties.get(UNIQ_KEY, ""), properties.get(KEYS, "")
    found = {unique} if unique.strip() else set()
    return found | set(keys.split(" ") if keys.strip() else ())


def _java_order(text: str) -> bytes:
    """Java compares texts by their UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
