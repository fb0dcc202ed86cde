"""A file's stamp, by which a reader notices that it was replaced."""

from pathlib import Path

FileStamp = tuple[int, int, int, int]


def stamp_of(path: Path) -> FileStamp:
    """Differs after the file was written, replaced, or given to others to read. OSError."""
    found = path.stat()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size
