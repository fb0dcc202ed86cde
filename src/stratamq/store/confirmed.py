"""How far a reader of the files alone may go, while our own state stands.

The log writes *confirmed* into the checkpoint every second; what is above may be cut by the next
recovery or the next promotion. RocketMQ writes `lock` over ours when it holds the store, and leaves
0 in the checkpoint: then only the frames themselves show where the log ends. In a store that no
other program has ever held 0 means that nothing is confirmed.
"""

from contextlib import closing

from stratamq.files.port import EntryKind, Files
from stratamq.formats.checkpoint import CHECKPOINT_FIELDS_BYTES, Checkpoint, decode_checkpoint
from stratamq.formats.store_paths import CHECKPOINT_PATH, LOCK_PATH
from stratamq.store.generations import GENERATIONS_PATH
from stratamq.store.origin import is_created_here

LOCK_MARK = b"stratamq "
"""How the text in the lock file begins while no other program has held the store since."""


def confirmed_end(files: Files) -> int | None:
    """The log offset at which readers stop; None: at the first frame that fails."""
    if _content(files, GENERATIONS_PATH, 1) == b"":
        return None
    if not is_ours(files):
        return None
    checkpoint = read_checkpoint(files)
    if checkpoint is None or (not checkpoint.confirm_phy_offset and not is_created_here(files)):
        return None
    return checkpoint.confirm_phy_offset


def read_checkpoint(files: Files) -> Checkpoint | None:
    """None: the file is missing, short, or no file."""
    return decode_checkpoint(_content(files, CHECKPOINT_PATH, CHECKPOINT_FIELDS_BYTES))


def is_ours(files: Files) -> bool:
    """Whether no other program has held the store since we last did."""
    return _content(files, LOCK_PATH, len(LOCK_MARK)).startswith(LOCK_MARK)


def _content(files: Files, path: str, length: int) -> bytes:
    entry = files.entry(path)
    if entry is None or entry.kind is not EntryKind.FILE:
        return b""
    with closing(files.open(path)) as file:
        return file.read(0, length)
