"""Keeps `stratamq/sealed.json` true: from where on every record has a checksum of its own.

    the log starts and        the place is
    adds checksums            where it was, or the end if the log was cut below it
    added none before, or     the log's end
      its history is lost
    adds none, or takes its   nowhere
      bytes from a master

Durable before the first record is appended after the start, so that no reader ever demands a
checksum of a record that was written without one.
"""

from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Files
from stratamq.formats.frame_verify import NOWHERE
from stratamq.store.sealed import SEALED_PATH, load_sealed, sealed_document


def begin_sealing(files: Files, end: int, *, seals: bool, history_known: bool) -> int:
    """The place for a log that starts at `end`; durable on return. Raises OSError."""
    file = MetadataFile(files, SEALED_PATH)
    before = load_sealed(file)
    if not seals:
        place = NOWHERE
    elif history_known:
        place = min(before, end)
    else:
        place = end
    if place != before:
        file.store(sealed_document(place))
    return place
