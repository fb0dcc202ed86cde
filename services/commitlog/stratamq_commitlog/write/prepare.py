"""From a message's fields to a frame that lacks only what the append assigns.

The checks and statuses of spec 3.5, the delay levels of 13.1 and the half topic of 13.2. Everything
that can be refused is refused here, before the message waits for its turn.
"""

from dataclasses import dataclass

from stratamq.errors import (
    DeliveryTimeError,
    InvalidRequestError,
    NotWritableError,
    StrataError,
)
from stratamq.formats import frame as frame_format
from stratamq.formats import property_crc, sysflag
from stratamq.formats.delay import (
    ASKED_TIMES,
    asked_time,
    clamp_level,
    parse_java_int,
    timer_out_ms,
)
from stratamq.formats.frame_layout import (
    END_FILE_MIN_BLANK_LENGTH,
    I16,
    I32,
    MAGIC_V1,
    MAGIC_V2,
    TOTAL_SIZE_POSITION,
)
from stratamq.formats.hosts import Host, encode_host
from stratamq.formats.message_status import SendStatus
from stratamq.formats.producer_item import PRODUCER_ITEM, encode_item
from stratamq.formats.properties import (
    DELAY,
    ITEM_SEPARATOR,
    MAX_PROPERTIES_BYTES,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    WAIT,
    encode_properties,
    waits_for_store,
)
from stratamq.formats.source_item import source_of
from stratamq.formats.sysflag import transaction_type
from stratamq.formats.topic_types import MessageType, type_of_message
from stratamq.formats.topics import HALF_TOPIC, MAX_TOPIC_BYTES, SCHEDULE_TOPIC, TIMER_TOPIC
from stratamq_commitlog.messages import Numbers, PutMessage, PutResult
from stratamq_commitlog.write.batch_check import ZERO_END, ZERO_RUN, looks_torn
from stratamq_commitlog.write.queue_offsets import QueueTurns
from stratamq_commitlog.write.topic_check import wrong_type
from stratamq_commitlog.write.topic_table import TopicConfig, TopicTable

_FOR_THE_COPY = 256
"""Bytes of properties that the delivery may add to a message that waits: its copy must fit."""


@dataclass(slots=True)
class Prepared:
    """A frame with QUEUEOFFSET, PHYSICALOFFSET, STORETIMESTAMP still 0, and the checksum unset."""

    frame: bytearray
    topic: str
    queue_id: int
    counted: bool
    """It takes a queue offset; prepared and rollback frames do not."""
    store_timestamp_position: int
    has_checksum: bool
    wait: bool = True
    numbers: Numbers | None = None


class Refused(Exception):
    """A message that is not stored: the status RocketMQ answers, and the reason."""

    def __init__(self, status: SendStatus, error: StrataError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


@dataclass(slots=True)
class Preparer:
    """Holds what does not change from message to message."""

    topics: TopicTable
    store_host: bytes
    delay_levels_ms: tuple[int, ...]
    timer_max_delay_ms: int
    max_message_bytes: int
    segment_bytes: int
    property_checksum: bool
    write_v2: bool
    turns: QueueTurns

    def message(self, message: PutMessage, now_ms: int, *, in_batch: bool) -> Prepared:
        """The frame of one message. Raises Refused."""
        if len(message.body) > self.max_message_bytes:
            raise _illegal(
                f"the body has {len(message.body)} bytes, more than {self.max_message_bytes} "
                "(commitlog.max_message_bytes)"
            )
        properties = dict(message.properties)
        topic, queue_id = message.topic, self._queue(message, properties)
        properties.pop(PRODUCER_ITEM, None)  # of a received message that is sent again
        wait = message.wait_store_ok and waits_for_store(properties.pop(WAIT, None))
        waits = self._waiting_place(message, properties, now_ms)
        if waits is not None:
            if in_batch:
                raise _illegal("a batch takes no delayed and no half messages")
            properties |= {REAL_TOPIC: topic, REAL_QID: str(queue_id)}
            topic, queue_id = waits
        raw_properties = self._encode_properties(properties, message.numbers)
        if waits is not None and len(raw_properties) > MAX_PROPERTIES_BYTES - _FOR_THE_COPY:
            raise Refused(
                SendStatus.PROPERTIES_SIZE_EXCEEDED,
                InvalidRequestError(
                    f"the properties have {len(raw_properties)} bytes, more than "
                    f"{MAX_PROPERTIES_BYTES - _FOR_THE_COPY}: those of its delivery follow"
                ),
            )
        topic_raw = topic.encode()
        try:
            encoded = frame_format.encode(
                topic=topic_raw,
                body=message.body,
                born_host=encode_host(message.born_host),
                store_host=self.store_host,
                properties=raw_properties,
                queue_id=queue_id,
                flag=message.flag,
                sys_flag=message.sys_flag & sysflag.TAKEN_FLAGS,
                born_timestamp_ms=message.born_timestamp_ms or now_ms,
                reconsume_times=message.reconsume_times,
                magic=MAGIC_V2 if len(topic_raw) > MAX_TOPIC_BYTES else MAGIC_V1,
            )
        except InvalidRequestError as error:
            raise Refused(SendStatus.MESSAGE_ILLEGAL, error) from None
        prepared = self._fitting(bytearray(encoded), topic, queue_id, counted=True)
        prepared.wait, prepared.numbers = wait, message.numbers
        return prepared

    def raw(self, raw: bytes) -> Prepared:
        """A complete frame taken as it is, whatever its transaction bits, and with room for a
        record checksum if records have one. Raises Refused."""
        try:
            decoded = frame_format.decode(raw)
        except StrataError as error:
            raise Refused(SendStatus.MESSAGE_ILLEGAL, error) from None
        if not isinstance(decoded, frame_format.Frame) or decoded.total_size != len(raw):
            raise _illegal("not exactly one whole frame")
        if len(decoded.store_host) != len(self.store_host):
            raise _illegal(f"STOREHOST must have {len(self.store_host)} bytes")
        if looks_torn(decoded.properties_raw or decoded.topic_raw):
            raise _illegal(f"{ZERO_END}, or {ZERO_RUN}")
        frame = self._sealed(raw, decoded.properties_raw)
        at = 56 + len(decoded.born_host)
        frame[at : at + len(self.store_host)] = self.store_host
        counted = transaction_type(decoded.sys_flag) in (
            sysflag.TRANSACTION_NONE,
            sysflag.TRANSACTION_COMMIT,
        )
        return self._fitting(frame, decoded.topic, decoded.queue_id, counted=counted)

    def _sealed(self, raw: bytes, properties: bytes) -> bytearray:
        """The frame with room for the record checksum, if it needs one and has none."""
        if not self.property_checksum or property_crc.has_property_crc(raw):
            return bytearray(raw)
        reserved = property_crc.reserve(properties)
        if len(reserved) > MAX_PROPERTIES_BYTES:
            raise Refused(
                SendStatus.PROPERTIES_SIZE_EXCEEDED,
                InvalidRequestError(
                    f"properties of {len(properties)} bytes leave no room for the record checksum"
                ),
            )
        frame = bytearray(raw[: len(raw) - len(properties) - I16.size])
        frame += I16.pack(len(reserved)) + reserved
        I32.pack_into(frame, TOTAL_SIZE_POSITION, len(frame))
        return frame

    def _queue(self, message: PutMessage, properties: dict[str, str]) -> int:
        topic = message.topic
        if len(topic.encode(errors="surrogatepass")) > MAX_TOPIC_BYTES and not self.write_v2:
            raise _illegal(
                f"the topic has more than {MAX_TOPIC_BYTES} bytes (commitlog.write_v2 allows it)"
            )
        try:
            config = self.topics.writable(topic)
        except NotWritableError as error:
            raise Refused(SendStatus.SERVICE_NOT_AVAILABLE, error) from None
        except StrataError as error:
            raise Refused(SendStatus.MESSAGE_ILLEGAL, error) from None
        queue_id = message.queue_id
        if queue_id is not None and not 0 <= queue_id < config.write_queues:
            raise _illegal(
                f"topic {topic} has queues 0 to {config.write_queues - 1}, no {queue_id}"
            )
        if not config.message_type.takes_all:
            self._check_type(message, properties, config)
        self.topics.keep(config)
        return self.turns.take(topic) if queue_id is None else queue_id

    def _check_type(
        self, message: PutMessage, properties: dict[str, str], config: TopicConfig
    ) -> None:
        if message.half:
            found = MessageType.TRANSACTION
        else:
            found = MessageType.DELAY if message.delay_level > 0 else type_of_message(properties)
        if found is not config.message_type:
            raise _illegal(wrong_type(config.topic, config.message_type, found))

    def _waiting_place(
        self, message: PutMessage, properties: dict[str, str], now_ms: int
    ) -> tuple[str, int] | None:
        """The topic and the queue in which the message waits; None: it goes to its own. Brings
        `properties` into line."""
        level = self._delay_level(message, properties)
        deliver_ms = None if level > 0 else self._deliver_ms(properties, now_ms)
        if message.half:
            if deliver_ms is not None:
                raise _illegal("a half message is delivered when it is committed, at no other time")
            properties.pop(DELAY, None)
            return HALF_TOPIC, 0
        if level > 0:
            for name in ASKED_TIMES:  # RocketMQ's rule: the level counts
                properties.pop(name, None)
            properties[DELAY] = str(level)
            return SCHEDULE_TOPIC, level - 1
        if deliver_ms is None or deliver_ms <= now_ms:
            return None
        if deliver_ms - now_ms > self.timer_max_delay_ms:
            raise Refused(
                SendStatus.MESSAGE_ILLEGAL,
                DeliveryTimeError(
                    f"the message is to be delivered in {deliver_ms - now_ms} ms, more than "
                    f"{self.timer_max_delay_ms} (commitlog.timer_max_delay_ms)"
                ),
            )
        out_ms = timer_out_ms(deliver_ms)
        properties |= {TIMER_DELIVER_MS: str(deliver_ms), TIMER_OUT_MS: str(out_ms)}
        return TIMER_TOPIC, 0

    def _deliver_ms(self, properties: dict[str, str], now_ms: int) -> int | None:
        """None: the message names no time. TIMER_OUT_MS is one that was delivered, and is sent on:
        RocketMQ does not delay it again."""
        if TIMER_OUT_MS in properties:
            return None
        try:
            return asked_time(properties, now_ms)
        except ValueError as error:
            raise _illegal(str(error)) from None

    def _delay_level(self, message: PutMessage, properties: dict[str, str]) -> int:
        level = message.delay_level
        if not level and DELAY in properties:
            try:
                level = parse_java_int(properties[DELAY])
            except ValueError as error:
                raise _illegal(f"property DELAY: {error}") from None
        return clamp_level(level, self.delay_levels_ms) if level > 0 else 0

    def _encode_properties(self, properties: dict[str, str], numbers: Numbers | None) -> bytes:
        try:
            raw = encode_properties(properties)
        except InvalidRequestError as error:
            raise Refused(SendStatus.MESSAGE_ILLEGAL, error) from None
        if numbers is not None:
            item = encode_item(numbers.producer, numbers.first)
            raw = raw + ITEM_SEPARATOR + item if raw else item
        if self.property_checksum:
            raw = property_crc.reserve(raw)
        elif looks_torn(raw):
            raise _illegal(f"{ZERO_END}, or {ZERO_RUN}")
        if source_of(raw) is not None:
            raise _illegal("the property PSRC is for services of the broker: leave it out")
        if len(raw) > MAX_PROPERTIES_BYTES:
            raise Refused(
                SendStatus.PROPERTIES_SIZE_EXCEEDED,
                InvalidRequestError(
                    f"the properties have {len(raw)} bytes, more than {MAX_PROPERTIES_BYTES}"
                ),
            )
        return raw

    def _fitting(self, frame: bytearray, topic: str, queue_id: int, *, counted: bool) -> Prepared:
        largest = self.segment_bytes - END_FILE_MIN_BLANK_LENGTH
        if len(frame) > largest:
            raise _illegal(f"the frame has {len(frame)} bytes, a segment takes {largest}")
        born6 = int.from_bytes(frame[36:40], "big") & sysflag.BORN_HOST_V6
        return Prepared(
            frame=frame,
            topic=topic,
            queue_id=queue_id,
            counted=counted,
            store_timestamp_position=68 if born6 else 56,
            has_checksum=property_crc.has_property_crc(frame),
        )


def _illegal(sentence: str) -> Refused:
    return Refused(SendStatus.MESSAGE_ILLEGAL, InvalidRequestError(sentence))


def batch_refusal(outcomes: list[Prepared | PutResult], max_bytes: int) -> PutResult | None:
    """Why messages that must be stored together cannot be; None when they can."""
    for outcome in outcomes:
        if isinstance(outcome, PutResult):
            return outcome
    frames = [outcome for outcome in outcomes if isinstance(outcome, Prepared)]
    if not frames:
        return None
    if len({(frame.topic, frame.queue_id) for frame in frames}) != 1:
        error = InvalidRequestError("a batch goes to one topic and one queue: name the queue")
        return PutResult(SendStatus.MESSAGE_ILLEGAL, frames[0].topic, error=error)
    size = sum(len(frame.frame) for frame in frames)
    if size > max_bytes:
        error = InvalidRequestError(f"the batch has {size} bytes, more than {max_bytes}")
        return PutResult(SendStatus.MESSAGE_ILLEGAL, frames[0].topic, error=error)
    return None


def encode_store_host(text: str) -> bytes:
    """`address:port` or `[address]:port` as STOREHOST. InvalidRequestError for anything else."""
    address, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise InvalidRequestError(f"store host {text!r}: expected an IP address and a port")
    return encode_host(Host(address.strip("[]"), int(port)))
