"""What text may not look like, so that recovery recognises a frame that the disk did not finish.

Above the last durable position recovery takes a frame for torn when a whole sector of its
properties is zero, or its last byte of text is (`recovery_cases`, J). Text like that is refused
when it comes in: acknowledged, it would end the log at the next crash. Frames with a record
checksum need no such rule.
"""

from stratamq.files.port import SECTOR_BYTES

ZERO_RUN_BYTES = SECTOR_BYTES
ZERO_END = "the properties end in a zero byte"
ZERO_RUN = f"the properties hold {ZERO_RUN_BYTES} zero bytes in a row"
_ZEROS = bytes(ZERO_RUN_BYTES)


def looks_torn(text: bytes) -> bool:
    return text.endswith(b"\0") or _ZEROS in text
