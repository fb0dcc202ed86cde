"""Topic names: which ones RocketMQ keeps for itself, and which ones can be made here.

A topic becomes a directory, so new names are held to letters that are safe in one. Names already on
disk are served whatever they are.
"""

import enum
import re

from stratamq.errors import InvalidRequestError

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
AUTO_CREATE_TOPIC = "TBW102"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRANSACTION_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

SYSTEM_PREFIX = "rmq_sys_"
TIMER_TOPIC = f"{SYSTEM_PREFIX}wheel_timer"
"""Messages that wait for any time, of RocketMQ 5 and ours."""
OWN_PREFIX = f"{SYSTEM_PREFIX}STRATAMQ_"
"""Topics for the broker's own records: services of the broker write them, producers may not."""
DRAIN_TOPIC = f"{OWN_PREFIX}DRAIN"
"""Ours, among the topics: its permission is whether its broker takes messages (`drain_of`)."""
DEAD_LETTER_PREFIX = "%DLQ%"
"""Before a group's name: the topic of what its members failed at too often."""
RETRY_PREFIX = "%RETRY%"
"""Before a group's name: a topic of what is handed to this group once more, and to no other."""

SYSTEM_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        AUTO_CREATE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        TRACE_TOPIC,
        TRANSACTION_CHECK_MAX_TIME_TOPIC,
    }
)

MAX_TOPIC_BYTES = 127
"""The topic length of a V1 frame is a signed byte; a longer name would wrap negative (spec 3.5)."""
MAX_V2_TOPIC_BYTES = 32_767
"""The topic length of a V2 frame is a signed short."""

ANY_QUEUE = -1
"""In place of a queue's number: the log chooses one of the topic's queues in turn."""
PERMISSION_WRITE, PERMISSION_READ = 2, 4
"""Bits of a topic's permission, as RocketMQ stores it."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


class Drain(enum.Enum):
    """Whether a broker takes messages. The value is the permission of `DRAIN_TOPIC`."""

    OPEN = 6
    LEAVING = 2
    """Topics are shown without the permission to write, and messages of those who have not looked
    since are taken."""
    DRAINED = 4
    """Messages are refused, whatever a topic's own permission."""


def drain_of(permission: int | None) -> Drain:
    """By the permission of `DRAIN_TOPIC`; None: there is no such topic."""
    both = PERMISSION_READ | PERMISSION_WRITE
    if permission is None or permission & both == both:
        return Drain.OPEN
    return Drain.LEAVING if permission & PERMISSION_WRITE else Drain.DRAINED


def retry_topic(group: str, topic: str) -> str:
    """Where the workers of a group that receive from `topic` look, too, as RocketMQ's POP does."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def retried_topic(group: str, topic: str) -> str:
    """The topic of which this is a group's retry topic; `topic` itself if it is none."""
    return topic.removeprefix(retry_topic(group, ""))


def is_made_for_services(topic: str) -> bool:
    """Whether a service of the broker makes the topic by its first message in it."""
    return is_system_topic(topic) or topic.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX))


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def validate_topic_name(topic: str) -> str:
    """`topic` itself, or InvalidRequestError saying what is wrong with it."""
    if not topic:
        raise InvalidRequestError("the topic name is empty")
    if not _NAME.fullmatch(topic):
        raise InvalidRequestError(
            f"topic name {topic[:160]!r}: only letters, digits and % | _ - are allowed"
        )
    if len(topic) > MAX_TOPIC_BYTES:
        raise InvalidRequestError(
            f"the topic name has {len(topic)} bytes, more than {MAX_TOPIC_BYTES}"
        )
    return topic
