"""What a message must have led to, by the scalar codecs."""

from stratamq.formats.delay import dispatch_tags_code
from stratamq.formats.frame import Frame, decode
from stratamq.formats.properties import DELAY, TAGS
from stratamq.formats.queue_unit import QueueUnit
from stratamq_torture.simulated.model import Message


def expected_unit(message: Message) -> QueueUnit:
    """The unit of a message, by the scalar codecs."""
    frame = decode(message.frame)
    assert isinstance(frame, Frame)
    properties = frame.properties
    code = dispatch_tags_code(
        frame.topic, properties.get(TAGS), properties.get(DELAY), frame.store_timestamp_ms
    )
    return QueueUnit(frame.physical_offset, frame.total_size, code)
