"""Record batches as messages: bodies with encoded properties, by topic and queue. Pure."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from stratamq.client.outgoing import encode_message_properties
from stratamq.errors import InvalidRequestError
from stratamq.formats.batch_frames import Row
from stratamq.formats.properties import KEYS, PROPERTY_CRC, TAGS, UNIQ_KEY

MESSAGE_COLUMNS = ("topic", "body", "keys", "tags", "properties", "queueId", "uniqueKey")
_OF_COLUMNS = frozenset((KEYS, TAGS, UNIQ_KEY, PROPERTY_CRC))
"""Properties that columns, or the broker, give: those of a message that was read are left out."""

Rows = tuple[str, int | None, list[Row]]


def rows_by_topic(
    batch: pa.RecordBatch, topic: str | None, origin: str, first: int
) -> Iterator[Rows]:
    """(topic, queue or None, rows in the batch's order).

    The unique key of row i is `origin`-(`first` + i), unless the column `uniqueKey` gives one.
    InvalidRequestError names the row that cannot be a message.
    """
    columns: dict[str, list[Any]] = {
        name: batch.column(name).to_pylist()
        for name in MESSAGE_COLUMNS
        if name in batch.schema.names
    }
    nothing = [None] * len(batch)
    topics = columns.get("topic", nothing) if topic is None else [topic] * len(batch)
    runs: dict[tuple[str, int | None], list[Row]] = {}
    rows = zip(
        topics,
        columns.get("queueId", nothing),
        columns["body"],
        columns.get("keys", nothing),
        columns.get("tags", nothing),
        columns.get("properties", nothing),
        columns.get("uniqueKey", nothing),
        strict=True,
    )
    for number, (its_topic, queue_id, body, keys, tags, properties, unique_key) in enumerate(
        rows, first
    ):
        if not its_topic or body is None:
            raise InvalidRequestError(f"row {number}: a message has a topic and a body")
        row = (
            body.encode() if isinstance(body, str) else body,
            encode_message_properties(
                tags or "",
                _words(keys),
                unique_key or f"{origin}-{number}",
                {name: text for name, text in properties if name not in _OF_COLUMNS}
                if properties
                else {},
            ),
        )
        runs.setdefault((its_topic, queue_id), []).append(row)
    for (its_topic, queue_id), its_rows in runs.items():
        yield its_topic, queue_id, its_rows


def _words(keys: str | list[str | None] | None) -> list[str]:
    words = keys.split() if isinstance(keys, str) else keys or ()
    return [word for word in words if word]
