"""Settings of the delivery service; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.errors import InvalidRequestError
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_TEXT, parse_delay_levels
from stratamq.service.config import FollowerConfig, setting


@dataclass(frozen=True)
class DeliveryConfig(FollowerConfig):
    """What happens to one broker's messages after they are stored."""

    message_delay_level: str = setting(
        DEFAULT_DELAY_LEVELS_TEXT,
        unit="",
        rocketmq="messageDelayLevel",
        doc="Delays of levels 1, 2, …: must be equal to the commit log's.",
    )
    save_interval_ms: int = setting(
        1_000,
        unit="ms",
        minimum=10,
        maximum=60_000,
        doc="Interval at which the state is saved; a start reads the log from there on.",
    )
    delay_offsets_interval_ms: int = setting(
        10_000,
        unit="ms",
        minimum=10,
        maximum=3_600_000,
        rocketmq="flushDelayOffsetInterval",
        doc="Interval at which config/delayOffset.json is written, for a RocketMQ broker that "
        "takes over.",
    )

    shared_attempts: int = setting(
        17,
        unit="",
        minimum=1,
        maximum=10_000,
        doc="How often a message of a shared group is handed out before it goes to %DLQ%group: "
        "RocketMQ's retryMaxTimes and one.",
    )

    def faults(self) -> Iterable[str]:
        try:
            parse_delay_levels(self.message_delay_level)
        except InvalidRequestError as error:
            yield f"message_delay_level: {error}"
