"""What the first bytes of a segment contain: when its first message was stored.

Store times never go back in a log, so that these bytes of each segment order its messages by time
without reading them. The layout is `frame_layout`'s.
"""

from stratamq.formats.frame_layout import HEAD, I64, MAGIC_V1, MAGIC_V2
from stratamq.formats.hosts import HOST_V6_BYTES
from stratamq.formats.sysflag import host_bytes

SEGMENT_HEAD_BYTES = HEAD.size + HOST_V6_BYTES + I64.size
"""So many bytes from a segment's beginning are enough."""


def first_store_time(head: bytes, start: int) -> int | None:
    """Store time, ms, of the frame at log offset `start` that `head` begins with; None when there
    is none, or fewer than `SEGMENT_HEAD_BYTES`."""
    if len(head) < SEGMENT_HEAD_BYTES:
        return None
    _, magic, _, _, _, _, physical_offset, sys_flag, _ = HEAD.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or physical_offset != start:
        return None
    born_bytes, _ = host_bytes(sys_flag)
    return int(I64.unpack_from(head, HEAD.size + born_bytes)[0])
