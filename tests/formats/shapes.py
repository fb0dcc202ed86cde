"""A frame of every shape: versions, address families, empty and negative fields."""

import pytest

from stratamq.formats import frame as frames
from stratamq.formats.frame_layout import MAGIC_V2

V4 = bytes.fromhex("7f00000100002a9f")
V6 = bytes(15) + b"\x01" + bytes.fromhex("00002a9f")


def build(**fields) -> bytes:
    defaults = {"topic": b"orders", "body": b"a body", "properties": b"TAGS\x01x"}
    return frames.encode(**{"born_host": V4, "store_host": V4, **defaults, **fields})


FRAMES = {
    "v1": build(),
    "v2": build(magic=MAGIC_V2, topic=b"t" * 200),
    "v2 short topic": build(magic=MAGIC_V2),
    "born v6": build(born_host=V6),
    "store v6": build(store_host=V6),
    "both v6": build(born_host=V6, store_host=V6, magic=MAGIC_V2),
    "empty": build(topic=b"", body=b"", properties=b""),
    "negative": build(queue_id=-1, flag=-2, queue_offset=-3, sys_flag=-64, store_timestamp_ms=-4),
}
every_shape = pytest.mark.parametrize("raw", FRAMES.values(), ids=FRAMES)
