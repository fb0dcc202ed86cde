"""Bytes with the fields marked: the offset of each field, and a hex dump that shows it.

Fields are distinguished by colour and, where there is none, by the `|` between them.
"""

from collections.abc import Iterator

from rich.text import Text

from stratamq.formats.frame_fields import Field, lines_of
from stratamq.formats.frame_layout import BLANK
from stratamq.formats.hosts import decode_host

BYTES_PER_LINE = 16
LEGEND_BYTES = 48
_COLOURS = ("bright_cyan", "bright_yellow", "bright_green", "bright_magenta", "bright_blue",
            "bright_red")  # fmt: skip


BLANK_FIELDS = [Field("REMAINING", 0, 4), Field("MAGICCODE", 4, 4)]
assert BLANK.size == 8

UNIT_SIZES = [("PHYOFFSET", 8), ("SIZE", 4), ("TAGSCODE", 8)]
STATE_SIZES = [
    ("PHYOFFSET", 8), ("SIZE", 4), ("STORESECONDS", 4), ("GROUPHASH", 4), ("STATE", 4),
]  # fmt: skip
INDEX_HEADER_SIZES = [
    ("BEGINTIMESTAMP", 8), ("ENDTIMESTAMP", 8), ("BEGINPHYOFFSET", 8), ("ENDPHYOFFSET", 8),
    ("HASHSLOTCOUNT", 4), ("INDEXCOUNT", 4),
]  # fmt: skip
INDEX_ITEM_SIZES = [("KEYHASH", 4), ("PHYOFFSET", 8), ("SECONDS", 4), ("PREVIOUS", 4)]
CHECKPOINT_SIZES = [
    ("PHYSICMSGTIMESTAMP", 8), ("LOGICSMSGTIMESTAMP", 8), ("INDEXMSGTIMESTAMP", 8),
    ("MASTERFLUSHEDOFFSET", 8), ("CONFIRMPHYOFFSET", 8), ("LOGICSPHYSICALOFFSET", 8),
]  # fmt: skip


def colour_of(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def hex_lines(raw: bytes, fields: list[Field], base: int) -> Iterator[Text]:
    """A hex dump; `base` is the number shown for the first byte."""
    for start, pieces in lines_of(raw, fields, BYTES_PER_LINE):
        line = Text(f"{base + start:>12}  ")
        shown = Text()
        position = start
        for piece in pieces:
            colour = "" if piece.number is None else colour_of(piece.number)
            line.append("|" if piece.begins and position else " ")
            line.append(piece.raw.hex(" "), colour)
            shown.append(piece.shown, colour)
            position += len(piece.raw)
        line.append("   " * (start + BYTES_PER_LINE - position) + "  ")
        yield line.append_text(shown)


def legend_lines(raw: bytes, fields: list[Field], base: int) -> Iterator[Text]:
    """Each field with its place, its size and its value or its first bytes."""
    for number, field in enumerate(fields):
        piece = raw[field.position : field.position + field.size]
        line = Text(f"{base + field.position:>12}  +{field.position:<5} {field.size:>6}  ")
        line.append(f"{field.name:<26}", colour_of(number))
        if field.size in (1, 2, 4, 8) and field.name not in _BYTES:
            line.append(f" {int.from_bytes(piece, 'big', signed=True)}")
        if field.name == "MAGICCODE":
            line.append(f" = {piece.hex().upper()}")
        elif field.name in ("BORNHOST", "STOREHOST"):
            line.append(f" {decode_host(piece)}")
        elif field.name in _BYTES:
            line.append(f" {piece[:LEGEND_BYTES]!r}" + ("…" if field.size > LEGEND_BYTES else ""))
        yield line


_BYTES = frozenset({"BORNHOST", "STOREHOST", "BODY", "TOPIC", "PROPERTIES"})
