"""Settings of the delivery service; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.errors import InvalidRequestError
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_TEXT, parse_delay_levels
from stratamq.service.config import FollowerConfig, setting
from stratamq_delivery.half_messages import CheckRules


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
        doc="Interval at which config/delayOffset.json and config/subscriptionGroup.json are "
        "written, for a RocketMQ broker that takes over.",
    )

    timer_roll_ms: int = setting(
        129_600_000,
        unit="ms",
        minimum=1_000,
        maximum=31_622_400_000,
        rocketmq="timerRollWindowSlot",
        doc="Age at which a message that waits for a time of its own is appended to the log again, "
        "at the latest: at most half of what the janitor keeps. The rest is its margin while "
        "nothing is delivered.",
    )

    shared_attempts: int = setting(
        17,
        unit="",
        minimum=1,
        maximum=10_000,
        doc="How often a message of a shared group is handed out before it goes to %DLQ%group: "
        "RocketMQ's retryMaxTimes and one.",
    )

    transaction_timeout_ms: int = setting(
        6_000,
        unit="ms",
        minimum=0,
        maximum=86_400_000,
        rocketmq="transactionTimeOut",
        doc="Age at which an undecided half message is checked, unless its property "
        "CHECK_IMMUNITY_TIME_IN_SECONDS names another.",
    )
    transaction_check_interval_ms: int = setting(
        30_000,
        unit="ms",
        minimum=1_000,
        maximum=86_400_000,
        rocketmq="transactionCheckInterval",
        doc="Time between two checks of one half message.",
    )
    transaction_check_max: int = setting(
        15,
        unit="",
        minimum=1,
        maximum=10_000,
        rocketmq="transactionCheckMax",
        doc="Checks without a decision after which a half message is given up: it goes to "
        "TRANS_CHECK_MAX_TIME_TOPIC.",
    )

    def check_rules(self) -> CheckRules:
        return CheckRules(
            self.transaction_timeout_ms,
            self.transaction_check_interval_ms,
            self.transaction_check_max,
        )

    def faults(self) -> Iterable[str]:
        try:
            parse_delay_levels(self.message_delay_level)
        except InvalidRequestError as error:
            yield f"message_delay_level: {error}"
