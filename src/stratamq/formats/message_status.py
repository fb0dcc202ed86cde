"""How putting and getting a message ends: RocketMQ's names, with the numbers of our protos."""

import enum


class SendStatus(enum.Enum):
    """How an append ended: RocketMQ's PutMessageStatus. The first four are stored."""

    PUT_OK = 1
    FLUSH_DISK_TIMEOUT = 2
    FLUSH_SLAVE_TIMEOUT = 3
    SLAVE_NOT_AVAILABLE = 4
    SERVICE_NOT_AVAILABLE = 5
    CREATE_MAPEDFILE_FAILED = 6
    MESSAGE_ILLEGAL = 7
    PROPERTIES_SIZE_EXCEEDED = 8
    OS_PAGECACHE_BUSY = 9
    UNKNOWN_ERROR = 10

    @property
    def stored(self) -> bool:
        """True when the message is in the log; only PUT_OK means that it is safe as configured."""
        return self.value <= SendStatus.SLAVE_NOT_AVAILABLE.value


class PullStatus(enum.Enum):
    """How a pull ended: RocketMQ's GetMessageStatus."""

    FOUND = 1
    NO_MATCHED_MESSAGE = 2
    MESSAGE_WAS_REMOVING = 3
    OFFSET_FOUND_NULL = 4
    OFFSET_OVERFLOW_BADLY = 5
    OFFSET_OVERFLOW_ONE = 6
    OFFSET_TOO_SMALL = 7
    NO_MATCHED_LOGIC_QUEUE = 8
    NO_MESSAGE_IN_QUEUE = 9
