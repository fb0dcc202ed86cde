"""Files that a setting names, such as certificates and permissions: read whole, and again when they
were replaced.
"""

from pathlib import Path

from stratamq.errors import ConfigurationError

FileStamp = tuple[int, int, int, int]


def stamp_of(path: Path, setting: str = "") -> FileStamp:
    """Differs after the file was written, replaced, or given to others to read. ConfigurationError,
    which names the setting, when it is not there."""
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(path, setting, error) from error
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size


def read_whole(path: Path, limit: int, setting: str = "") -> bytes:
    """ConfigurationError for a file that cannot be read, or is larger than `limit` bytes."""
    try:
        with path.open("rb") as file:
            found = file.read(limit + 1)
    except OSError as error:
        raise _unreadable(path, setting, error) from error
    if len(found) > limit:
        raise ConfigurationError([f"{path} is larger than {limit} bytes"])
    return found


def _unreadable(path: Path, setting: str, error: OSError) -> ConfigurationError:
    return ConfigurationError([f"{setting} {path}: {error.strerror or error}".lstrip()])
