"""The name that a reader has among the members of its group, unless its caller gives one."""

import itertools
import os
import socket

_numbers = itertools.count(1)
_LONGEST_HOST = 64
"""Characters of a host name that are kept."""


def reader_name() -> str:
    """HOST@PROCESS#NUMBER: another one at every call of this process."""
    return f"{socket.gethostname()[:_LONGEST_HOST]}@{os.getpid()}#{next(_numbers)}"
