"""What a page shows of a body: bounded, and every byte accounted for."""

import json

import pytest
from stratamq_console.bodies import (
    MAX_BINARY_CHARACTERS,
    MAX_HEX_BYTES,
    MAX_JSON_NODES,
    MAX_TEXT_CHARACTERS,
    JsonNode,
    json_tree,
    show_body,
)

from stratamq.formats.sysflag import Compression
from tests.console.frames import received
from tests.support.compressing import compress_body


def nodes(tree: JsonNode) -> int:
    return 1 + sum(nodes(one) for one in tree.children or ())


def test_a_text_is_shown_as_it_is():
    shown = show_body(received("Grüße\n<b>".encode()))
    assert (shown.text, shown.is_text, shown.text_left_out) == ("Grüße\n<b>", True, 0)


def test_of_four_mebibytes_of_zeros_the_beginning_is_shown():
    shown = show_body(received(bytes(4 << 20)))
    assert not shown.is_text and shown.tree is None
    assert shown.text == "\ufffd" * MAX_BINARY_CHARACTERS
    assert sum(len(piece.shown) for line in shown.lines for piece in line.pieces) == MAX_HEX_BYTES
    assert shown.bytes_left_out > (4 << 20) - MAX_HEX_BYTES


def test_a_long_text_says_how_much_is_left_out():
    shown = show_body(received(b"x" * (MAX_TEXT_CHARACTERS + 7)))
    assert (len(shown.text), shown.text_left_out) == (MAX_TEXT_CHARACTERS, 7)


@pytest.mark.parametrize("compression", list(Compression))
def test_compressed_bodies_are_shown_plain(compression):
    body, flag = compress_body(b'{"a": 1}', compression)
    shown = show_body(received(body, sys_flag=flag))
    assert shown.text == '{"a": 1}' and shown.tree is not None
    assert shown.compression == compression.name.lower()


def test_a_body_that_is_not_compressed_as_it_says_is_shown_with_the_reason():
    _, flag = compress_body(b"x", Compression.ZLIB)
    shown = show_body(received(b"not zlib", sys_flag=flag))
    assert shown.text == "not zlib" and "ZLIB" in shown.problem


def test_json_becomes_a_tree_of_bounded_size():
    tree = json_tree(json.dumps({"a": [1, "x", None], "b": {}}).encode())
    assert [one.label for one in tree.children] == ["a", "b"]
    assert [one.text for one in tree.children[0].children] == ["1", '"x"', "null"]
    wide = json_tree(json.dumps(list(range(100_000))).encode())
    assert nodes(wide) <= MAX_JSON_NODES + 1
    assert wide.children[-1].text.endswith("more")
    deep = json_tree(b"[" * 500 + b"]" * 500)
    assert nodes(deep) < 60


@pytest.mark.parametrize("body", [b"text", b"{", b"[" * 100_000, b"", b"12"])
def test_what_is_no_document_has_no_tree(body):
    assert json_tree(body) is None


def test_the_hex_lines_are_the_frame_and_the_fields_cover_it():
    message = received(b"some body", keys=["k"])
    shown = show_body(message)
    pieces = [piece for line in shown.lines for piece in line.pieces]
    assert bytes.fromhex("".join(piece.text for piece in pieces)) == message.frame
    assert sum(row.size for row in shown.fields) == message.size
    values = {row.name: row.value for row in shown.fields}
    assert values["TOTALSIZE"] == str(message.size) and values["BODY"] == "some body"


def test_json_that_names_half_a_character_can_be_on_a_page():
    tree = json_tree(b'{"\\ud800": "\\udfff", "a": "\\u0000"}')
    for one in tree.children:
        assert (one.label + one.text).encode()
    assert tree.children[0].label == "\\ud800"
