"""What `dump` prints of each thing it finds: plain dictionaries, the lines of `--output json`.

The names are those of the lines the real RocketMQ is asked with (`tests/interop`): `frame` and
`message`. Added are `physicalOffset` (the frame's own field, where `phyOffset` is the place), the
body as people read it, and what `dump` found wrong.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from stratamq.cli.dump_walk import Record, WalkedUnit, WalkEnd
from stratamq.formats.checkpoint import Checkpoint
from stratamq.formats.delay import dispatch_tags_code
from stratamq.formats.frame import Frame
from stratamq.formats.hosts import decode_host
from stratamq.formats.index_layout import IndexHeader, IndexItem
from stratamq.formats.property_crc import check_property_crc
from stratamq.formats.queue_unit import extension_offset, is_extension_address
from stratamq.formats.shown_bodies import BodyAs, body_fields
from stratamq.formats.transaction_state import STATES, TransactionState

Row = dict[str, Any]
_NO_NAMES: Mapping[str, str] = {}


def fields_of(value: Any, names: Mapping[str, str] = _NO_NAMES, **others: Any) -> Row:
    """The fields of a dataclass by their names in camel case, `…timestamp_ms` without its unit; by
    those of `names`, if they are there. `others` are added, or stand in a field's place. Without
    the broker's name where all is of one broker."""
    row: Row = {}
    for field in fields(value):
        name = field.name.removesuffix("_ms") if "timestamp" in field.name else field.name
        head, *rest = name.split("_")
        shown = names.get(field.name) or head + "".join(map(str.capitalize, rest))
        row[shown] = getattr(value, field.name)
    if not row.get("broker", True):
        del row["broker"]
    return row | others


def frame_row(record: Record, body_as: BodyAs) -> Row:
    """A frame or a blank of the log."""
    frame = record.frame
    if frame is None:
        return {"kind": "frame", "phyOffset": record.offset, "ok": True, "size": 0,
                "blankLength": record.blank}  # fmt: skip
    properties = frame.properties
    row: Row = {
        "kind": "frame",
        "phyOffset": record.offset,
        "ok": record.body_is_good,
        "size": frame.total_size,
        "magic": f"{frame.magic:08X}",
        "topic": frame.topic,
        "queueId": frame.queue_id,
        "queueOffset": frame.queue_offset,
        "tagsCode": dispatch_tags_code(
            frame.topic, properties.get("TAGS"), properties.get("DELAY"), frame.store_timestamp_ms
        ),
        "storeTimestamp": frame.store_timestamp_ms,
        "keys": properties.get("KEYS") if frame.properties_raw else "",
        "uniqKey": properties.get("UNIQ_KEY"),
        "sysFlag": frame.sys_flag,
        "preparedTransactionOffset": frame.prepared_transaction_offset,
        "sha256": hashlib.sha256(record.raw).hexdigest(),
        "physicalOffset": frame.physical_offset,
        "flag": frame.flag,
        "bodyCRC": frame.body_crc,
        **_client_fields(frame),
        "properties": properties,
        "msgId": frame.message_id,
    }
    row.update(body_fields(frame.body, frame.sys_flag, body_as))
    row.update(_faults(record))
    return row


def message_row(unit: WalkedUnit, record: Record, body_as: BodyAs) -> Row:
    """A message found through its queue; `record` is a frame."""
    frame = record.frame
    assert frame is not None
    row: Row = {
        "kind": "message",
        "topic": unit.queue.topic,
        "queueId": unit.queue.queue_id,
        "at": unit.queue_index,
        "frameTopic": frame.topic,
        "frameQueueId": frame.queue_id,
        "queueOffset": frame.queue_offset,
        "phyOffset": frame.physical_offset,
        "size": frame.total_size,
        "storeSize": frame.total_size,
        "cqPhyOffset": unit.unit.physical_offset,
        "cqSize": unit.unit.size,
        "tagsCode": unit.unit.tags_code,
        "sysFlag": frame.sys_flag,
        "flag": frame.flag,
        "bodyCRC": frame.body_crc,
        "storeTimestamp": frame.store_timestamp_ms,
        **_client_fields(frame),
        "preparedTransactionOffset": frame.prepared_transaction_offset,
        "properties": frame.properties,
        "msgId": frame.message_id,
        "frameSha256": hashlib.sha256(record.raw).hexdigest(),
        "ok": record.body_is_good,
    }
    row.update(body_fields(frame.body, frame.sys_flag, body_as))
    row.update(_faults(record))
    return row


def _client_fields(frame: Frame) -> Row:
    return {
        "bornTimestamp": frame.born_timestamp_ms,
        "bornHost": str(decode_host(frame.born_host)),
        "storeHost": str(decode_host(frame.store_host)),
        "reconsumeTimes": frame.reconsume_times,
        "bodyLength": len(frame.body),
        "bodySha256": hashlib.sha256(frame.body).hexdigest(),
    }


def _faults(record: Record) -> Row:
    faults: Row = {}
    if not record.body_is_good:
        faults["fault"] = "the body does not have the checksum of the frame"
    if check_property_crc(record.raw) is False:
        faults["propertyCrcOk"] = False
    return faults


def unit_row(found: WalkedUnit) -> Row:
    unit = found.unit
    row: Row = {
        "kind": "unit",
        "topic": found.queue.topic,
        "queueId": found.queue.queue_id,
        "at": found.queue_index,
        "cqPhyOffset": unit.physical_offset,
        "cqSize": unit.size,
        "tagsCode": unit.tags_code,
    }
    if unit.is_pre_blank:
        row["preBlank"] = True
    if is_extension_address(unit.tags_code):
        row["extensionOffset"] = extension_offset(unit.tags_code)
    return row


def index_row(number: int, file: str, length: int, header: IndexHeader) -> Row:
    return {
        "kind": "index",
        "number": number,
        "file": file,
        "length": length,
        **fields_of(header),
    }


def item_row(file: str, item: IndexItem, slots: int, begin_timestamp_ms: int) -> Row:
    return {
        "kind": "item",
        "file": file,
        "n": item.number,
        "slot": item.key_hash % slots,
        "keyHash": item.key_hash,
        "phyOffset": item.physical_offset,
        "timeDiffSeconds": item.time_diff_seconds,
        "storeTimestamp": begin_timestamp_ms + item.time_diff_seconds * 1000,
        "prev": item.previous,
    }


def state_row(at: int, unit: TransactionState) -> Row:
    return {
        "kind": "transaction",
        "at": at,
        "state": STATES[unit.state],
        "phyOffset": unit.physical_offset,
        "size": unit.size,
        "storeTimestamp": unit.store_time_s * 1000,
        "groupHash": unit.group_hash,
    }


def checkpoint_row(checkpoint: Checkpoint) -> Row:
    return {
        "kind": "checkpoint",
        **fields_of(checkpoint),
        "minTimestamp": checkpoint.min_timestamp_ms,
        "minTimestampIndex": checkpoint.min_timestamp_index_ms,
    }


def stop_row(stop: WalkEnd) -> Row:
    row = fields_of(stop, {"is_damage": "damage"})
    if stop.offset is None:
        del row["offset"]
    return {"kind": "stop", **row}
