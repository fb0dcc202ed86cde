"""What is taken out of the log is kept under `stratamq/aside/`, for an operator."""

from contextlib import closing

from stratamq.files.port import File, Files
from stratamq.formats.file_names import offset_name
from stratamq.formats.store_paths import ASIDE_DIRECTORY, COMMIT_LOG

_COPY_BYTES = 4 << 20


def aside_path(files: Files, offset: int, when: int | str) -> str:
    """A name that is free, for bytes that lay at log offset `offset`."""
    return free_path(files, f"{ASIDE_DIRECTORY}/{COMMIT_LOG}-{offset_name(offset)}-{when}")


def free_path(files: Files, path: str) -> str:
    """`path`, or one like it that is free: the same may be kept twice at one time of the store, as
    after two crashes while the wall clock is not believed."""
    free, serial = path, 1
    while files.entry(free) is not None:
        serial += 1
        free = f"{path}.{serial}"
    return free


def copy_aside(files: Files, path: str, file: File, position: int, end: int) -> None:
    """Keep [position, end) of `file` under `path`. Durable on return."""
    files.create(path, end - position, sparse=True)
    with closing(files.open(path, writable=True)) as copy:
        copy_bytes(copy, file, position, end)
        copy.flush()


def copy_bytes(copy: File, file: File, position: int, end: int) -> None:
    """Write [position, end) of `file` to the beginning of `copy`."""
    for at in range(position, end, _COPY_BYTES):
        copy.write(at - position, file.read(at, min(_COPY_BYTES, end - at)))


def last_used(file: File, position: int) -> int:
    """Behind the last byte that is not zero, from `position` on; `position` if all are. What was
    never written is not read: the rest of a segment of 1 GiB takes three seconds."""
    end = file.data_end(position)
    while end > position:
        start = max(position, end - _COPY_BYTES)
        data = file.read(start, end - start).rstrip(b"\0")
        if data:
            return start + len(data)
        end = start
    return position
