"""UTF-8 text exactly as Java reads and writes it, because hashes are computed from the result.

Python and Java replace malformed bytes alike (one U+FFFD for each maximal wrong piece) except for
surrogates encoded as three bytes: Java makes one U+FFFD of the three, Python three. Verified
against OpenJDK 17 `String.decodeUTF8_UTF16`.
"""

import re

from stratamq.errors import InvalidRequestError

LONGEST_NAME_BYTES = 255
"""The limit of a name of a topic, a group or a client."""
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def decode_text(raw: bytes) -> str:
    """Never fails: malformed bytes become U+FFFD."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # 0xED always starts a sequence and 0xFF is always wrong by itself, so the swap is local.
        return _ENCODED_SURROGATE.sub(b"\xff", raw).decode("utf-8", "replace")


def encode_text(text: str) -> bytes:
    """Never fails: a lone surrogate becomes `?`, as in Java."""
    return text.encode("utf-8", "replace")


def check_name(name: str, what: str = "a name") -> None:
    """InvalidRequestError."""
    if not 0 < len(name.encode()) <= LONGEST_NAME_BYTES:
        raise InvalidRequestError(f"{what} has 1 to {LONGEST_NAME_BYTES} bytes: {name!r:.80}")


def utf16_length(text: str) -> int:
    """What Java calls the length of the string."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
