"""`consume --format`: the tokens of kcat; partitions are queues, headers properties."""

import re
from collections.abc import Callable, Sequence

from stratamq.client import ReceivedMessage
from stratamq.client.message_rows import application_properties
from stratamq.errors import InvalidRequestError
from stratamq.formats.text import encode_text

Piece = Callable[[ReceivedMessage], bytes]

TOKENS_HELP = (
    "%t topic, %p queue, %o queue offset, %k keys, %K their bytes (-1: none), %s or %v body, "
    "%S its bytes, %R the same as 4 bytes big-endian, %T store time in ms, %g tag, "
    "%h properties as a=b,c=d, %% a percent sign; \\n \\t \\r \\\\ \\0 and \\xNN"
)
_PIECE = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}


def parse_format(text: str) -> list[Piece]:
    """InvalidRequestError, with the list of what there is, for an unknown token or escape."""
    pieces: list[Piece] = []
    for found in _PIECE.finditer(text):
        token, escape = found.group(1), found.group(2)
        if token is not None:
            if token not in _TOKENS:
                raise _unknown(found.group())
            pieces.append(_TOKENS[token])
        elif escape is not None:
            if escape not in _ESCAPES and len(escape) < 3:
                raise _unknown(found.group())
            raw = _ESCAPES[escape] if escape in _ESCAPES else bytes([int(escape[1:], 16)])
            pieces.append(_constant(raw))
        else:
            pieces.append(_constant(found.group().encode("utf-8", "surrogateescape")))
    return pieces


def formatted(pieces: Sequence[Piece], message: ReceivedMessage) -> bytes:
    return b"".join([piece(message) for piece in pieces])


def _unknown(text: str) -> InvalidRequestError:
    return InvalidRequestError(f"--format: there is no {text}, but {TOKENS_HELP}")


def _constant(raw: bytes) -> Piece:
    return lambda _: raw


def _keys(message: ReceivedMessage) -> bytes:
    return encode_text(" ".join(message.keys))


_TOKENS: dict[str, Piece] = {
    "t": lambda message: encode_text(message.topic),
    "p": lambda message: b"%d" % message.queue_id,
    "o": lambda message: b"%d" % message.queue_offset,
    "k": _keys,
    "K": lambda message: b"%d" % (len(_keys(message)) or -1),
    "s": lambda message: message.body,
    "v": lambda message: message.body,
    "S": lambda message: b"%d" % len(message.body),
    "R": lambda message: len(message.body).to_bytes(4, "big"),
    "T": lambda message: b"%d" % message.store_timestamp_ms,
    "g": lambda message: encode_text(message.tag),
    "h": lambda message: encode_text(
        ",".join(f"{name}={value}" for name, value in application_properties(message).items())
    ),
    "%": _constant(b"%"),
}
