"""Rows of the table as the scalar codec gives them: frame by frame, nothing shared with columns."""

from datetime import UTC, datetime, timedelta
from typing import Any

from stratamq.formats.compression import decompress_body
from stratamq.formats.frame import Frame, decode
from stratamq.formats.hosts import decode_host
from stratamq.formats.properties import KEYS, TAGS, split_keys

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def frames_of(data: bytes) -> list[Frame]:
    """Adjacent frames, nothing between or behind them."""
    frames, position = [], 0
    while position < len(data):
        frame = decode(data, position)
        assert isinstance(frame, Frame)
        frames.append(frame)
        position += frame.total_size
    return frames


def row_of(frame: Frame, *, decompress: bool = False) -> dict[str, Any]:
    """As `pyarrow.RecordBatch.to_pylist` gives it; maps are lists of pairs there."""
    properties = frame.properties
    return {
        "topic": frame.topic,
        "queueId": frame.queue_id,
        "queueOffset": frame.queue_offset,
        "physicalOffset": frame.physical_offset,
        "msgId": frame.message_id,
        "keys": split_keys(properties.get(KEYS, "")),
        "tags": properties.get(TAGS),
        "body": decompress_body(frame.body, frame.sys_flag) if decompress else frame.body,
        "properties": list(properties.items()),
        "flag": frame.flag,
        "sysFlag": frame.sys_flag,
        "bornTimestamp": _EPOCH + timedelta(milliseconds=frame.born_timestamp_ms),
        "bornHost": _host(frame.born_host),
        "storeTimestamp": _EPOCH + timedelta(milliseconds=frame.store_timestamp_ms),
        "storeHost": _host(frame.store_host),
        "reconsumeTimes": frame.reconsume_times,
        "preparedTransactionOffset": frame.prepared_transaction_offset,
        "bodyCrc": frame.body_crc,
        "size": frame.total_size,
    }


def rows_of(data: bytes, *, decompress: bool = False) -> list[dict[str, Any]]:
    return [row_of(frame, decompress=decompress) for frame in frames_of(data)]


def _host(raw: bytes) -> str:
    host = decode_host(raw)
    address = f"[{host.address}]" if ":" in host.address else host.address
    return f"{address}:{host.port}"
