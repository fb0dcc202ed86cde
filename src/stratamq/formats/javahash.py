"""`java.lang.String.hashCode`, on which tag codes and index keys stand.

h = 31·h + c over the UTF-16 code units, in 32 bits. A tag code is that number sign-extended to 64
bits (so the Python integer stays as it is); an index hash is its absolute value, where the one
number without an absolute value counts as 0. Spec 6.3, 7.2.
"""

import struct
from collections.abc import Iterable

from stratamq.formats.numbers import INT32_MIN
from stratamq.formats.text import decode_text


def java_string_hash(text: str) -> int:
    """Signed 32 bits."""
    if text.isascii():
        return _hash_units(text.encode("ascii"))
    raw = text.encode("utf-16-le", "surrogatepass")
    return _hash_units(struct.unpack(f"<{len(raw) // 2}H", raw))


def java_string_hash_utf8(raw: bytes) -> int:
    """The hash of the text in `raw`; malformed bytes count as U+FFFD, as Java decodes them."""
    return _hash_units(raw) if raw.isascii() else java_string_hash(decode_text(raw))


def tags_code(tags: str) -> int:
    """Hash the whole TAGS text, which is never split at `||`. No tags: 0."""
    return java_string_hash(tags)


def index_key_hash(key_text: str) -> int:
    """Hash `topic#key`; never negative."""
    return absolute_hash(java_string_hash(key_text))


def absolute_hash(code: int) -> int:
    return 0 if code == INT32_MIN else abs(code)


def queue_of_key(key: str, queue_count: int) -> int:
    """The queue that RocketMQ's SelectMessageQueueByHash takes for a key: |hash mod count|, with
    Java's remainder."""
    return abs(java_string_hash(key)) % queue_count


def _hash_units(units: Iterable[int]) -> int:
    code = 0
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - 0x1_0000_0000 if code & 0x8000_0000 else code
