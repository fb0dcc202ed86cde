"""Whether a log that answers is the one of this directory: its generations tell.

The log service lists every generation in `stratamq/generations.json` before it serves in it, and no
two brokers invent the same number. A run file that a kill left behind may name a port on which
another broker's log listens by now; to follow that one would be to serve its messages.
"""

from stratamq.files.metadata import MetadataFile
from stratamq.files.port import OWN_DIRECTORY, Files

GENERATIONS_PATH = f"{OWN_DIRECTORY}/generations.json"


def is_listed(files: Files, generation: int) -> bool:
    """Whether the log of this directory has begun that generation. A reader's look: nothing is
    changed; a list that cannot be read knows none."""
    document = MetadataFile(files, GENERATIONS_PATH).load(keep_aside=False) or {}
    listed = document.get("generations")
    return isinstance(listed, list) and any(
        isinstance(entry, list) and entry[:1] == [generation] for entry in listed
    )
