"""Whether a worker reads the segment file that the driver saw: both look at the ends of a part.

Below a log's end nothing changes but by deletion of whole segments, so equal files have equal ends,
and an older copy of a file that has been appended to since has not.
"""

import os
import socket
from pathlib import Path
from zlib import crc32

from stratamq.errors import InvalidRequestError
from stratamq.table.log_files import LogFiles, SegmentPart, open_log

END_BYTES = 4096


def log_for_workers(where: str | tuple[str, ...], known: int = 0) -> LogFiles:
    """Like `open_log`, with absolute paths, because workers do not run in the driver's
    directory.
    """
    if isinstance(where, str):
        return open_log(os.path.abspath(where), known)
    return open_log([os.path.abspath(path) for path in where], known)


def witness(part: SegmentPart) -> int | None:
    """Hash the part's bytes as this process sees them; None if the file does not exist."""
    length = min(END_BYTES, part.end - part.begin)
    try:
        with open(part.path, "rb", buffering=0) as file:
            head = os.pread(file.fileno(), length, part.begin - part.segment_start)
            tail = os.pread(file.fileno(), length, part.end - length - part.segment_start)
    except FileNotFoundError:
        return None
    return crc32(tail, crc32(head))


def check_same(part: SegmentPart, driver_saw: int | None) -> None:
    """InvalidRequestError when this machine has no such directory, or another file in its place;
    FileNotFoundError when the file alone is gone, as retention leaves it."""
    directory = Path(part.path).parent
    if not directory.is_dir():
        raise _other(part, f"there is no {directory}")
    seen = witness(part)
    if seen is None:
        raise FileNotFoundError(part.path)
    if driver_saw is not None and seen != driver_saw:
        raise _other(part, "its bytes differ")


def _other(part: SegmentPart, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{socket.gethostname()} does not see the driver's {part.path} ({why}): the log's "
        "directory has to be mounted under one path on the driver and all workers"
    )
