"""Checks and prepares a message before it waits to be sent, for both producers; their settings."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stratamq.client.batching import LARGEST_BATCH_BYTES, Batching, Outbox
from stratamq.client.checking import LONGEST_S, check_fields, is_whole
from stratamq.client.numbering import Numbering
from stratamq.client.outgoing import (
    UniqueKeys,
    check_properties,
    checked_text,
    encode_message_properties,
    time_properties,
)
from stratamq.client.units import Fields
from stratamq.client.values import Message
from stratamq.errors import InvalidRequestError
from stratamq.files.port import Clock, Random
from stratamq.formats.batch_frames import Row
from stratamq.formats.numbers import INT32_MAX, INT32_MIN, INT64_MAX

LARGEST_BATCH_MESSAGES = 4096


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The options of a producer.

    With `retry` messages are numbered, and sent again for `delivery_timeout_s` after `send` when
    their stream breaks or the log is busy. The log recognises messages that it has, and stores none
    twice. A message that it can no longer recognise is not sent again, and fails as *perhaps
    stored*. Without `retry` messages are sent once, without a number."""

    batch_bytes: int = 1024 * 1024
    batch_messages: int = LARGEST_BATCH_MESSAGES
    window: int = 16
    """The most batches in flight."""
    linger_ms: float = 5.0
    """How long a batch waits to become full while others are in flight."""
    max_pending_bytes: int = 8 * 1024 * 1024
    """`send` waits while so many bytes are unanswered."""
    retry: bool = True
    delivery_timeout_s: float = 120.0
    retry_delay_ms: float = 100.0
    """The delay before the second attempt; it doubles for each further one."""
    unique_keys: bool = True
    """Give each message a UNIQ_KEY, unless it has one."""
    require_replicas: bool = False
    """Fail with BusyError, and store nothing, while a SYNC_MASTER has fewer slaves than it
    requires; else such messages are stored and not confirmed. `retry` covers the error."""
    client_name: str = ""
    """The name that the log service's logs show."""
    timeout_s: float = 30.0
    """The timeout of calls beside the stream."""

    def __post_init__(self) -> None:
        check_fields(self)
        bounds = {
            "batch_bytes": (1, LARGEST_BATCH_BYTES),
            "batch_messages": (1, LARGEST_BATCH_MESSAGES),
            "window": (1, 1024),
            "linger_ms": (0, 60_000),
            "max_pending_bytes": (1, 1 << 40),
            "delivery_timeout_s": (0, LONGEST_S),
            "timeout_s": (0, LONGEST_S),
            "retry_delay_ms": (0, 60_000),
        }
        for name, (low, high) in bounds.items():
            if not low <= getattr(self, name) <= high:
                raise InvalidRequestError(
                    f"{name} is {getattr(self, name)}, not between {low} and {high}"
                )

    def outbox(self, random: Random) -> Outbox:
        batching = Batching(
            self.batch_bytes,
            self.batch_messages,
            self.window,
            int(self.linger_ms * 1e6),
            delivery_ns=int(self.delivery_timeout_s * 1e9),
            retry_delay_ns=int(self.retry_delay_ms * 1e6),
        )
        return Outbox(batching, Numbering(random) if self.retry else None)

    def delay_s(self, failures: int, random: Random) -> float:
        """Before attempt `failures` + 1, with jitter: 50 to 100 % of the doubled delay, at most a
        second, or the first delay if that is longer."""
        longest = max(1_000.0, self.retry_delay_ms)
        delay_ms = min(self.retry_delay_ms * 2 ** min(failures, 16), longest)
        return delay_ms * (0.5 + random.getrandbits(16) / 2**17) / 1000


class MessageIntake:
    """Turns messages into rows. Not thread-safe."""

    def __init__(self, settings: ProducerSettings, clock: Clock, random: Random) -> None:
        self._settings = settings
        self._clock = clock
        self._unique_keys = UniqueKeys(clock, random)

    def row(
        self,
        body: bytes,
        tag: str,
        keys: Sequence[str],
        properties: Mapping[str, str],
        unique_key: str | None,
        born_timestamp_ms: int,
    ) -> tuple[Row, int]:
        """The row, and the time of birth. InvalidRequestError for what no broker would take."""
        now_ms = self._clock.wall_ms()
        if unique_key is None:
            unique_key = self._unique_keys.next(now_ms) if self._settings.unique_keys else ""
        row = (body, encode_message_properties(tag, keys, unique_key, properties))
        return row, born_timestamp_ms or now_ms

    def message(self, message: Message) -> Message:
        """A message that goes alone, with its unique key. InvalidRequestError for what no broker
        would take."""
        check_place(
            message.topic,
            message.queue_id,
            (message.flag, message.sys_flag, message.born_timestamp_ms, message.reconsume_times),
        )
        check_properties(message.properties)
        time_properties(message)
        encode_message_properties(
            message.tag, message.keys, message.unique_key or "", message.properties
        )
        if message.unique_key is not None or not self._settings.unique_keys:
            return message
        unique_key = self._unique_keys.next(self._clock.wall_ms())
        return dataclasses.replace(message, unique_key=unique_key)


def check_place(topic: str, queue_id: int | None, fields: Fields) -> None:
    """InvalidRequestError for a topic, queue or number that does not fit a frame."""
    if not isinstance(topic, str):
        raise InvalidRequestError(f"the topic name is a text, not {topic!r:.100}")
    if not topic:
        raise InvalidRequestError("the topic name is empty")
    if not topic.isascii():
        checked_text(topic)
    for number in fields if queue_id is None else (queue_id, *fields):
        if type(number) is not int and not is_whole(number):
            raise InvalidRequestError(
                "queue_id, flag, sys_flag, born_timestamp_ms, reconsume_times are whole numbers, "
                f"not {number!r:.100}"
            )
    if queue_id is not None and not 0 <= queue_id <= INT32_MAX:
        raise InvalidRequestError(f"queue {queue_id} does not exist anywhere")
    flag, sys_flag, born_timestamp_ms, reconsume_times = fields
    if not (
        INT32_MIN <= flag <= INT32_MAX
        and INT32_MIN <= sys_flag <= INT32_MAX
        and INT32_MIN <= reconsume_times <= INT32_MAX
        and -INT64_MAX <= born_timestamp_ms <= INT64_MAX
    ):
        raise InvalidRequestError("flag, sys_flag, reconsume_times or born_timestamp_ms: too large")


def check_body(size_bytes: int, largest_bytes: int) -> None:
    """InvalidRequestError for a body of more than the broker takes."""
    if size_bytes > largest_bytes:
        limit = f"{largest_bytes:,} bytes"
        for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
            if largest_bytes % unit == 0:
                limit = f"{largest_bytes // unit:,} {name}"
                break
        raise InvalidRequestError(
            f"the body has {size_bytes:,} bytes, above the broker's limit of {limit} "
            "(commitlog.max_message_bytes)"
        )
