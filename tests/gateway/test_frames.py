"""Frames and headers of the remoting protocol, against the tables of spec/remoting.md 1."""

import json
import struct

import pytest
from stratamq_gateway.frames import (
    BINARY,
    Answer,
    FrameBuffer,
    decode_header,
    decode_json,
    encode_answer,
    encode_request,
)

from stratamq.errors import InvalidRequestError
from tests.gateway.remoting import frame


def binary(fields: dict[str, str]) -> bytes:
    packed = b"".join(
        struct.pack(">H", len(name))
        + name.encode()
        + struct.pack(">i", len(value))
        + value.encode()
        for name, value in fields.items()
    )
    head = struct.pack(">hBhii", 310, 0, 479, 7, 2)
    return head + struct.pack(">i", 0) + struct.pack(">i", len(packed)) + packed


HEADER = (
    b'{"code":105,"flag":0,"language":"JAVA","opaque":3,"version":479,'
    b'"extFields":{"topic":"t","n":1}}'
)


def test_a_header_in_json_gives_its_fields_as_texts():
    [command] = FrameBuffer().take(frame(HEADER, b"body"))
    assert (command.code, command.opaque, command.version) == (105, 3, 479)
    assert command.fields == {"topic": "t", "n": "1"}  # C++ sends numbers
    assert command.body == b"body" and not command.is_oneway


def test_a_binary_header_leaves_empty_values_out():
    [command] = FrameBuffer().take(frame(binary({"a": "g", "i": "", "b": "t"}), kind=BINARY))
    assert command.fields == {"a": "g", "b": "t"}
    assert (command.code, command.opaque, command.is_oneway) == (310, 7, True)


@pytest.mark.parametrize("cut", [1, 3, 7, 9, 50])
def test_frames_come_whole_whatever_the_pieces_are(cut):
    data = frame(HEADER, b"x" * 20) * 3
    buffer = FrameBuffer()
    pieces = [data[at : at + cut] for at in range(0, len(data), cut)]
    assert sum(len(buffer.take(piece)) for piece in pieces) == 3
    assert len(buffer) == 0


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">II", 0x7FFF_FFFF, 4),  # 2 GiB
        struct.pack(">II", 8, 5) + b"12345678",  # the header is longer than its frame
        frame(b"{"),
        frame(b"[]"),
        frame(b'{"flag":1}'),
        frame(b'{"code":1e400}'),
        frame(b'{"code":NaN}'),
        frame(b'{"code":1,"remark":"\xed\xa0\x80"}'),  # a surrogate, in bytes
        frame(b"\xff\xfe"),
        frame(b"{}", kind=7),
        frame(b"\0" * 5, kind=BINARY),
        frame(binary({"a": "b"})[:-1], kind=BINARY),
        frame(b"[" * 100_000),
    ],
)
def test_what_is_no_frame_is_refused(data):
    with pytest.raises(InvalidRequestError):
        FrameBuffer().take(data)


def test_an_answer_has_the_opaque_of_its_request_and_no_spaces():
    head, body = encode_answer(Answer(0, {"offset": 5, "ok": True}, b"abc"), 9)
    length, header = struct.unpack_from(">II", head)
    assert length == len(head) - 4 + len(body) and header == len(head) - 8
    text = bytes(head[8:])
    assert b" " not in text
    assert json.loads(text)["extFields"] == {"offset": "5", "ok": "true"}
    assert json.loads(text)["opaque"] == 9 and json.loads(text)["flag"] == 1


def test_a_request_of_the_server_is_oneway():
    [command] = FrameBuffer().take(encode_request(40, 1, {"consumerGroup": "g"}, oneway=True))
    assert command.is_oneway and command.fields == {"consumerGroup": "g"}


def test_a_header_of_an_unknown_kind_is_named():
    with pytest.raises(InvalidRequestError, match="kind 5"):
        decode_header(5, b"")


@pytest.mark.parametrize("half", ["\\ud800", "\\uDC00x"])
def test_half_a_character_is_refused_with_the_number_of_its_request(half):
    text = '{"code":310,"opaque":4,"language":"%s","extFields":{"i":"%s","b":"t"}}'
    [command] = FrameBuffer().take(frame((text % (half, half)).encode()))
    assert "surrogate" in command.wrong and command.opaque == 4
    assert not command.fields and command.language == "OTHER", "nothing else meets it"
    with pytest.raises(ValueError, match="surrogate"):
        decode_json(b'{"clientID":["%s"]}' % half.encode())


def test_a_whole_character_may_be_escaped():
    [command] = FrameBuffer().take(frame(rb'{"code":1,"extFields":{"i":"\ud83d\ude00"}}'))
    assert command.fields == {"i": "\U0001f600"} and not command.wrong
    assert decode_json(rb'["\ud83d\ude00"]') == ["\U0001f600"]


def test_an_answer_can_be_written_whatever_its_remark_cites():
    head, _ = encode_answer(Answer(1, remark="no topic \ud800"), 9)
    assert json.loads(bytes(head[8:]))["remark"] == "no topic ?"
