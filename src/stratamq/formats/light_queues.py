"""Light queues: further queues into which RocketMQ puts a message (multi-dispatch). Spec 5.3.

    property                  value
    INNER_MULTI_DISPATCH      names of queues, joined by `,`
    INNER_MULTI_QUEUE_OFFSET  the message's queue offset in each, in the same order, joined by `,`

Only names that begin with %LMQ% are light queues; each is the queue 0 of a topic of its name. The
broker writes the offsets. Ours gives none: in a record with a property checksum, which ours has,
they are a producer's text.
"""

from stratamq.errors import CorruptRecordError
from stratamq.formats.frame import Frame, decode
from stratamq.formats.frame_layout import QUEUE_ID_POSITION, QUEUE_OFFSET_POSITION
from stratamq.formats.numbers import INT64_MAX
from stratamq.formats.properties import PROPERTY_CRC, find_property
from stratamq.formats.text import decode_text

LIGHT_QUEUE_PREFIX = "%LMQ%"
LIGHT_QUEUE_ID = 0
MULTI_DISPATCH, MULTI_QUEUE_OFFSET = b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"


def light_places(properties: bytes) -> list[tuple[str, int]]:
    """The light queues of a message, with its queue offset in each. None of a text that no broker
    writes: another number of offsets, or one that is no queue offset."""
    names, offsets = find_property(properties, MULTI_DISPATCH), b""
    if names is not None and find_property(properties, PROPERTY_CRC.encode()) is None:
        offsets = find_property(properties, MULTI_QUEUE_OFFSET) or b""
    texts = offsets.split(b",")
    named = decode_text(names or b"").split(",")
    if len(texts) != len(named) or not all(_is_offset(text) for text in texts):
        return []
    places = zip(named, map(int, texts), strict=True)
    return [(name, offset) for name, offset in places if name.startswith(LIGHT_QUEUE_PREFIX)]


def as_in_light_queue(raw: bytes, topic: str, offset: int) -> bytes | None:
    """The frame as its light queue `topic` has it, with the queue and the queue offset there; None
    for a frame that is not in this place."""
    try:
        frame = decode(raw, verify_body=False)
    except CorruptRecordError:
        return None
    if not isinstance(frame, Frame) or (topic, offset) not in light_places(frame.properties_raw):
        return None
    patched = bytearray(raw)
    patched[QUEUE_ID_POSITION : QUEUE_ID_POSITION + 4] = LIGHT_QUEUE_ID.to_bytes(4, "big")
    patched[QUEUE_OFFSET_POSITION : QUEUE_OFFSET_POSITION + 8] = offset.to_bytes(8, "big")
    return bytes(patched)


def _is_offset(text: bytes) -> bool:
    return text.isdigit() and len(text) <= len(str(INT64_MAX)) and int(text) <= INT64_MAX
