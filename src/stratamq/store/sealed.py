"""From where on every record of the log ends in a checksum of the whole record.

    stratamq/sealed.json        {"from": log offset, or null: nowhere}

A record whose checksum was wiped out looks like one that never had any, and nothing would guard
its header and properties. The log service records here, durably before the first such record, where
those without one ended; readers take an unmarked record behind that place for a damaged one. A file
that is missing or damaged is ignored, and so is any once another program has held the store.
"""

from stratamq.files.metadata import JsonObject, LoadOutcome, MetadataFile
from stratamq.files.port import Files
from stratamq.formats.frame_verify import NOWHERE
from stratamq.formats.store_paths import SEALED_PATH


def sealed_from(files: Files) -> int:
    """A reader's look: nothing is changed. `NOWHERE` (beyond every offset) if it is not recorded.

    Who does not follow the running log asks `confirmed.is_ours` before.
    """
    return load_sealed(MetadataFile(files, SEALED_PATH), keep_aside=False)


def load_sealed(file: MetadataFile, *, keep_aside: bool = True) -> int:
    """The file's content; its owner keeps aside what is damaged."""
    document = file.load(keep_aside=keep_aside)
    offset = (document or {}).get("from")
    if file.found.outcome is not LoadOutcome.OK or isinstance(offset, bool):
        return NOWHERE
    return offset if isinstance(offset, int) and 0 <= offset < NOWHERE else NOWHERE


def sealed_document(offset: int) -> JsonObject:
    return {"from": None if offset == NOWHERE else offset}
