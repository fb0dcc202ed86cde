"""Whether StrataMQ made the store itself, or went on with what another program had written.

    stratamq/origin.json        {"created_ms": wall clock}: there while the first is true

The log service writes it while the log is still empty, and removes it when it finds that another
program has held the store since. No file, or a damaged one, counts as another program's store.
"""

from stratamq.files.metadata import LoadOutcome, MetadataFile
from stratamq.files.port import Clock, Files
from stratamq.formats.store_paths import ORIGIN_PATH


def store_origin(files: Files, clock: Clock) -> None:
    """StrataMQ makes this store. Durable on return. Raises OSError."""
    MetadataFile(files, ORIGIN_PATH).store({"created_ms": clock.wall_ms()})


def is_created_here(files: Files) -> bool:
    """A reader's look: nothing is changed."""
    file = MetadataFile(files, ORIGIN_PATH)
    return file.load(keep_aside=False) is not None and file.found.outcome is LoadOutcome.OK
