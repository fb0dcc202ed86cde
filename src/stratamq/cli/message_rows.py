"""Messages from a broker as rows: the names of `dump`'s lines."""

from stratamq.cli.dump_rows import BodyAs, Row, body_fields
from stratamq.client import ReceivedMessage

COLUMNS = ("topic", "queueId", "queueOffset", "storeTimestamp", "tag", "keys", "body")


def message_row(message: ReceivedMessage, body_as: BodyAs = BodyAs.AUTO) -> Row:
    frame = message.decode()
    return {
        "kind": "message",
        "topic": frame.topic,
        "queueId": frame.queue_id,
        "queueOffset": frame.queue_offset,
        "phyOffset": frame.physical_offset,
        "size": frame.total_size,
        "msgId": frame.message_id,
        "uniqKey": message.unique_key,
        "tag": message.tag,
        "keys": " ".join(message.keys),
        "properties": frame.properties,
        "bornTimestamp": frame.born_timestamp_ms,
        "storeTimestamp": frame.store_timestamp_ms,
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "flag": frame.flag,
        "sysFlag": frame.sys_flag,
        "reconsumeTimes": frame.reconsume_times,
        **body_fields(frame, body_as),
    }
