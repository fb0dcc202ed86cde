"""Frames and headers of RocketMQ's remoting protocol: `spec/remoting.md` 1.1 to 1.4.

    4 bytes   length of everything behind them
    1         how the header is written: 0 JSON, 1 binary
    3         length of the header
    …         header
    …         body

All numbers are big-endian. Answers and requests of the server have JSON headers, whatever the peer
sends: every client accepts that, and some accept nothing else.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

from stratamq.errors import InvalidRequestError

MAX_FRAME_BYTES = 16_777_216
JSON, BINARY = 0, 1
IS_ANSWER, IS_ONEWAY = 1, 2
ACCESS_KEY, SIGNATURE = "AccessKey", "Signature"
VERSION = 479
"""RocketMQ 5.3.3: clients and tools take it for the broker's version."""
_LENGTHS = struct.Struct(">II")
_BINARY_HEAD = struct.Struct(">hBhii")
_I16, _I32 = struct.Struct(">H"), struct.Struct(">i")
_TEXTS = frozenset((str,))


def _finite(number: str) -> float:
    found = float(number)
    if not isfinite(found):
        raise ValueError(f"{number:.40} is out of range")
    return found


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
encode_text = json.encoder.encode_basestring
"""A text in JSON, whose characters may be any."""
_HALF = "a text with half of a surrogate pair: the client is to send whole characters"
_LANGUAGES = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
    "OMS", "RUST", "NODE_JS",
)  # fmt: skip


class Command(NamedTuple):
    """A request, or an answer, as it came."""

    code: int
    fields: Mapping[str, str]
    body: bytes = b""
    opaque: int = 0
    flag: int = 0
    language: str = "OTHER"
    version: int = 0
    remark: str = ""
    wrong: str = ""
    """Why it is refused, whatever it asks for. It has no fields then."""

    def signed_content(self) -> bytes:
        """What a client signs: the values of all other fields by the order of their names, and the
        body. Up to version 399 of the protocol clients do not sign `_UNIQUE_KEY_QUERY`."""
        left_out = {SIGNATURE}
        if self.version <= 399:
            left_out.add("_UNIQUE_KEY_QUERY")
        values = [self.fields[name] for name in sorted(self.fields) if name not in left_out]
        return "".join(values).encode("utf-8", "replace") + self.body

    @property
    def is_answer(self) -> bool:
        return bool(self.flag & IS_ANSWER)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & IS_ONEWAY)


class FrameBuffer:
    """Cuts what a connection receives into commands. Holds less than one frame between calls."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._wanted = 0
        """With fewer bytes no frame is complete."""

    def __len__(self) -> int:
        return len(self._rest)

    def take(self, data: bytes) -> list[Command]:
        """The commands that are complete now. InvalidRequestError: the peer does not speak the
        protocol, and what comes next cannot be found."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        commands, at, end = [], 0, len(data)
        wanted = _LENGTHS.size
        while end - at >= _LENGTHS.size:
            length, header = _LENGTHS.unpack_from(data, at)
            header_length = header & 0xFF_FFFF
            if length > MAX_FRAME_BYTES or header_length > length - 4:
                raise InvalidRequestError(
                    f"a frame of {length} bytes with a header of {header_length}: the longest "
                    f"frame has {MAX_FRAME_BYTES} bytes"
                )
            wanted = 4 + length
            if end - at < wanted:
                break
            body_at = at + _LENGTHS.size + header_length
            head, body = data[at + _LENGTHS.size : body_at], data[body_at : at + wanted]
            commands.append(decode_header(header >> 24, head, body))
            at += wanted
            wanted = _LENGTHS.size
        if at < end:
            self._rest += data[at:] if at else data
            self._wanted = wanted
        return commands


def decode_header(kind: int, head: bytes, body: bytes = b"") -> Command:
    """InvalidRequestError for what is no header."""
    try:
        if kind == JSON:
            text = head.decode()
            try:
                header, end = _DECODER.scan_once(text, 0)  # as `decode`, which allows spaces
            except StopIteration:
                end = -1
            if end != len(text):
                header = _DECODER.decode(text)
            if _has_half(header, head):
                texts = {"extFields": None, "language": "OTHER", "remark": None}
                return _from_json(header | texts, body)._replace(wrong=_HALF)
            return _from_json(header, body)
        if kind == BINARY:
            return _from_binary(head, body)
    except (ValueError, TypeError, AttributeError, KeyError, struct.error, IndexError) as error:
        raise InvalidRequestError(f"a header that cannot be decoded: {error}") from error
    except RecursionError as error:
        raise InvalidRequestError("a header that is nested too deeply") from error
    raise InvalidRequestError(f"a header of kind {kind}: JSON is 0, binary is 1")


def decode_json(data: bytes) -> Any:
    """A body's. ValueError, RecursionError."""
    found = _DECODER.decode(data.decode())
    if _has_half(found, data):
        raise ValueError(_HALF)
    return found


def _has_half(found: Any, data: bytes) -> bool:
    """Whether a text cannot be written as UTF-8. JSON has such texts only by escapes."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return False
    try:
        _ENCODER.encode(found).encode()
    except UnicodeEncodeError:
        return True
    return False


def _from_json(header: dict[str, Any], body: bytes) -> Command:
    fields = header.get("extFields") or {}
    if not _TEXTS.issuperset(map(type, fields.values())):
        fields = {name: field_text(fields[name]) for name in fields if fields[name] is not None}
    return Command(
        int(header["code"]),
        fields,
        body,
        int(header.get("opaque", 0)),
        int(header.get("flag", 0)),
        str(header.get("language", "OTHER")),
        int(header.get("version", 0)),
        str(header.get("remark") or ""),
    )


def field_text(value: Any) -> str:
    """The C++ client sends numbers."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        raise ValueError("a field is a text")
    return str(value)


def _from_binary(head: bytes, body: bytes) -> Command:
    code, language, version, opaque, flag = _BINARY_HEAD.unpack_from(head)
    remark, at = _sized(head, _BINARY_HEAD.size, _I32)
    packed, end = _sized(head, at, _I32)
    if end != len(head):
        raise ValueError("its lengths do not add up")
    fields, at = {}, 0
    while at < len(packed):
        name, at = _sized(packed, at, _I16)
        value, at = _sized(packed, at, _I32)
        if value:  # RocketMQ reads an empty value as none
            fields[name.decode()] = value.decode()
    of_peer = _LANGUAGES[language] if language < len(_LANGUAGES) else "OTHER"
    return Command(code, fields, body, opaque, flag, of_peer, version, remark.decode())


def _sized(data: bytes, at: int, length: struct.Struct) -> tuple[bytes, int]:
    (size,) = length.unpack_from(data, at)
    begin = at + length.size
    if size < 0 or begin + size > len(data):
        raise ValueError("its lengths do not add up")
    return data[begin : begin + size], begin + size


class Answer(NamedTuple):
    code: int = 0
    fields: Mapping[str, object] = {}
    body: bytes | memoryview = b""
    remark: str = ""


def encode_answer(answer: Answer, opaque: int) -> list[bytes | memoryview]:
    """In pieces: the body is not copied."""
    return _encoded(answer.code, IS_ANSWER, opaque, answer.fields, answer.body, answer.remark)


def framed_head(head: bytes, body_bytes: int = 0) -> bytes:
    """A frame of an encoded header, up to its body."""
    return _LENGTHS.pack(4 + len(head) + body_bytes, len(head)) + head


def encode_request(
    code: int, opaque: int, fields: Mapping[str, object], body: bytes = b"", *, oneway: bool
) -> bytes:
    return b"".join(_encoded(code, IS_ONEWAY if oneway else 0, opaque, fields, body, ""))


def _encoded(
    code: int,
    flag: int,
    opaque: int,
    fields: Mapping[str, object],
    body: bytes | memoryview,
    remark: str,
) -> list[bytes | memoryview]:
    header: dict[str, object] = {
        "code": code,
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION,
    }
    if fields:
        header["extFields"] = {name: field_text(value) for name, value in fields.items()}
    if remark:
        header["remark"] = remark
    head = compact(header)
    return [framed_head(head, len(body)), body]


def compact(value: object) -> bytes:
    """JSON without spaces: the Go client cuts a route's text at `,` and `:`. What is no character
    becomes `?`: a remark may cite anything, and a request is answered."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


def with_table(name: str, table: Iterable[tuple[object, object]], **others: object) -> bytes:
    """JSON as fastjson writes a member that is a map: its keys are objects or numbers, and stand
    there as they are. Java's tools read a key that is an object in no other way."""
    entries = b",".join(compact(key) + b":" + compact(value) for key, value in table)
    rest = compact(others)[1:]
    return b"{" + compact(name) + b":{" + entries + (b"}," if others else b"}") + rest


def text(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise InvalidRequestError(f"the field {name} is missing")
    return value


def number(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = fields.get(name)
    if value is None or value == "":
        if default is None:
            raise InvalidRequestError(f"the field {name} is missing")
        return default
    try:
        found = int(value)
    except ValueError as error:
        raise InvalidRequestError(f"the field {name} is {value!r:.80}, not a number") from error
    if not -(1 << 63) <= found < 1 << 63:
        raise InvalidRequestError(f"the field {name} is not a number of 64 bits")
    return found


def boolean(fields: Mapping[str, str], name: str) -> bool:
    return fields.get(name) == "true"
