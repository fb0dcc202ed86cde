"""What a broker is to its cluster; the numbers are those of the wire."""

import enum


class Role(enum.Enum):
    ASYNC_MASTER = 1
    SYNC_MASTER = 2
    SLAVE = 3
