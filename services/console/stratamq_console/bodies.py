"""One message's body as people read it: text, folded JSON, and its bytes with the frame's fields.

What is shown is bounded: of 4 MiB a page has the beginning, and says so; the download has all.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stratamq.client import ReceivedMessage
from stratamq.errors import CorruptionError
from stratamq.formats.frame_fields import Field, FieldPiece, frame_fields, lines_of
from stratamq.formats.hosts import decode_host
from stratamq.formats.sysflag import compression_of

MAX_TEXT_CHARACTERS = 32_000
MAX_BINARY_CHARACTERS = 1_000
"""Shown of bytes that are no text."""
MAX_JSON_BYTES = 1 << 20
MAX_JSON_NODES = 1_000
MAX_JSON_DEPTH = 40
MAX_VALUE_CHARACTERS = 2_000
MAX_HEX_BYTES = 2_048
BYTES_PER_LINE = 16
COLOURS = 6
_RAW_FIELDS = frozenset({"BORNHOST", "STOREHOST", "BODY", "TOPIC", "PROPERTIES"})


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A value of a JSON document. `children` None: it is no object and no list."""

    label: str
    text: str
    children: tuple["JsonNode", ...] | None = None


@dataclass(frozen=True, slots=True)
class HexPiece:
    """Bytes of one field on one line; `colour` numbers the fields in turn, 0 is of none."""

    text: str
    shown: str
    name: str
    colour: int


@dataclass(frozen=True, slots=True)
class HexLine:
    offset: int
    pieces: tuple[HexPiece, ...]


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field of the frame: its place in the log, its bytes, and its value."""

    name: str
    offset: int
    size: int
    value: str
    colour: int


@dataclass(frozen=True, slots=True)
class ShownBody:
    """`problem`: why the body could not be decompressed. `text_left_out` counts characters, and
    `bytes_left_out` bytes of the frame, that are not on the page."""

    size: int
    stored_size: int
    compression: str
    problem: str
    text: str
    is_text: bool
    text_left_out: int
    tree: JsonNode | None
    lines: tuple[HexLine, ...]
    fields: tuple[FieldRow, ...]
    bytes_left_out: int


def show_body(message: ReceivedMessage) -> ShownBody:
    """All that a page shows of a message's bytes."""
    problem, body = "", message.stored_body
    try:
        body = message.body
    except CorruptionError as error:
        problem = error.message
    text, is_text = _text_of(body)
    most = MAX_TEXT_CHARACTERS if is_text else MAX_BINARY_CHARACTERS
    fields = frame_fields(message.decode())
    return ShownBody(
        size=len(body),
        stored_size=len(message.stored_body),
        compression=_compression(message.sys_flag),
        problem=problem,
        text=text[:most],
        is_text=is_text,
        text_left_out=max(0, len(text) - most),
        tree=json_tree(body),
        lines=tuple(hex_lines(message.frame[:MAX_HEX_BYTES], fields, message.physical_offset)),
        fields=tuple(field_rows(message.frame, fields, message.physical_offset)),
        bytes_left_out=max(0, message.size - MAX_HEX_BYTES),
    )


def _compression(sys_flag: int) -> str:
    try:
        found = compression_of(sys_flag)
    except ValueError as error:
        return str(error)
    return "" if found is None else found.name.lower()


def _text_of(body: bytes) -> tuple[str, bool]:
    """The body as text, and whether it is some; control characters are shown as U+FFFD."""
    try:
        text, is_text = body.decode(), True
    except UnicodeDecodeError:
        text, is_text = body[: 4 * MAX_TEXT_CHARACTERS].decode("utf-8", "replace"), False
    piece = text[: MAX_TEXT_CHARACTERS + 1]
    plain = "".join(one if one.isprintable() or one in "\n\r\t" else "\ufffd" for one in piece)
    return plain + text[len(piece) :], is_text and plain == piece


# --- JSON ---


def json_tree(body: bytes) -> JsonNode | None:
    """None for what is no object or list of JSON, or too large to be folded."""
    if body[:1] not in (b"{", b"[") or len(body) > MAX_JSON_BYTES:
        return None
    try:
        return tree_of(json.loads(body))
    except (ValueError, RecursionError):
        return None


def tree_of(document: Any) -> JsonNode:
    """A bounded tree of what a decoder gave."""
    return _Folding().node("", document, 0)


class _Folding:
    """Counts the nodes of one document."""

    def __init__(self) -> None:
        self._left = MAX_JSON_NODES

    def node(self, label: str, value: Any, depth: int) -> JsonNode:
        self._left -= 1
        if isinstance(value, dict):
            pairs: list[tuple[str, Any]] = [(str(key), one) for key, one in value.items()]
            return self._parent(label, f"{{{len(pairs)}}}", pairs, depth)
        if isinstance(value, list | tuple):
            pairs = [(str(number), one) for number, one in enumerate(value[:MAX_JSON_NODES])]
            return self._parent(label, f"[{len(value)}]", pairs, depth)
        text = value.hex() if isinstance(value, bytes) else _scalar(value)
        cut = "…" if len(text) > MAX_VALUE_CHARACTERS else ""
        return JsonNode(_shown(label), _shown(text) + cut)

    def _parent(self, label: str, text: str, pairs: list[tuple[str, Any]], depth: int) -> JsonNode:
        children = []
        for name, value in pairs:
            if self._left <= 0 or depth >= MAX_JSON_DEPTH:
                children.append(JsonNode("…", f"{len(pairs) - len(children)} more"))
                break
            children.append(self.node(name, value, depth + 1))
        return JsonNode(_shown(label), text, tuple(children))


def _shown(text: str) -> str:
    """Bounded; of surrogates, which JSON can name and no page can have, their escapes."""
    return text[:MAX_VALUE_CHARACTERS].encode("utf-8", "backslashreplace").decode()


def _scalar(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)


# --- bytes ---


def hex_lines(raw: bytes, fields: list[Field], base: int) -> Iterator[HexLine]:
    """Lines of 16 bytes, cut where fields meet; `base` numbers the first byte."""
    for start, pieces in lines_of(raw, fields, BYTES_PER_LINE):
        yield HexLine(base + start, tuple(_hex_piece(one, fields) for one in pieces))


def _hex_piece(piece: FieldPiece, fields: list[Field]) -> HexPiece:
    name, colour = "", 0
    if piece.number is not None:
        name, colour = fields[piece.number].name, piece.number % COLOURS + 1
    return HexPiece(piece.raw.hex(" "), piece.shown, name, colour)


def field_rows(raw: bytes, fields: list[Field], base: int) -> Iterator[FieldRow]:
    for number, field in enumerate(fields):
        piece = raw[field.position : field.end]
        if field.name in ("BORNHOST", "STOREHOST"):
            value = str(decode_host(piece))
        elif field.name in _RAW_FIELDS:
            value = piece[:60].decode("utf-8", "replace") + ("…" if len(piece) > 60 else "")
            value = "".join(one if one.isprintable() else "·" for one in value)
        else:
            value = str(int.from_bytes(piece, "big", signed=True))
            if field.name == "MAGICCODE":
                value += f" = {piece.hex().upper()}"
        yield FieldRow(field.name, base + field.position, field.size, value, number % COLOURS + 1)
