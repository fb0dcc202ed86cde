"""The three kinds of number of the store, which are never mixed.

Offset       bytes from the start of the log; never renumbered
Position     bytes from the start of one file or one buffer
QueueIndex   ordinal of a message inside its (topic, queue)
"""

from typing import NewType

Offset = NewType("Offset", int)
Position = NewType("Position", int)
QueueIndex = NewType("QueueIndex", int)

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


NextOffset = tuple[str, int, int]
"""topic, queue id, the queue offset that its next message gets."""
