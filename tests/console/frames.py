"""Received messages without a broker."""

from collections.abc import Mapping, Sequence

from stratamq.client import ReceivedMessage
from stratamq.formats import frame
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.properties import KEYS, TAGS, encode_properties

HOST = encode_host(Host("127.0.0.1", 10911))


def received(
    body: bytes,
    *,
    tag: str = "",
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    sys_flag: int = 0,
    physical_offset: int = 0,
) -> ReceivedMessage:
    """A message of the topic `orders`, as the log would have it."""
    given = {**(properties or {}), **({TAGS: tag} if tag else {})}
    if keys:
        given[KEYS] = " ".join(keys)
    raw = frame.encode(
        topic=b"orders",
        body=body,
        born_host=HOST,
        store_host=HOST,
        properties=encode_properties(given),
        sys_flag=sys_flag,
        physical_offset=physical_offset,
        born_timestamp_ms=1_000,
        store_timestamp_ms=2_000,
    )
    return ReceivedMessage(raw)
