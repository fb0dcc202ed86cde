"""Bytes with the fields marked: the offset of each field, and a hex dump that shows it.

Fields are distinguished by colour and, where there is none, by the `|` between them.
"""

from collections.abc import Iterator

from rich.text import Text

from stratamq.formats.frame_fields import Field
from stratamq.formats.frame_layout import BLANK
from stratamq.formats.hosts import decode_host

BYTES_PER_LINE = 16
LEGEND_BYTES = 48
_COLOURS = ("bright_cyan", "bright_yellow", "bright_green", "bright_magenta", "bright_blue",
            "bright_red")  # fmt: skip


BLANK_FIELDS = [Field("REMAINING", 0, 4), Field("MAGICCODE", 4, 4)]
assert BLANK.size == 8

UNIT_SIZES = [("PHYOFFSET", 8), ("SIZE", 4), ("TAGSCODE", 8)]
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
    first = 0  # the first field that reaches into the line
    for start in range(0, len(raw), BYTES_PER_LINE):
        end = min(start + BYTES_PER_LINE, len(raw))
        line = Text(f"{base + start:>12}  ")
        shown = Text()
        while first < len(fields) and fields[first].end <= start:
            first += 1
        position = start
        for number in range(first, len(fields)):
            field = fields[number]
            if field.position >= end:
                break
            piece = raw[position : min(field.end, end)]
            colour = colour_of(number)
            line.append("|" if field.position == position and position else " ")
            line.append(piece.hex(" "), colour)
            shown.append(piece.translate(_SHOWN).decode("ascii"), colour)
            position += len(piece)
        if position < end:  # bytes of no field
            line.append(" " + raw[position:end].hex(" "))
            shown.append(raw[position:end].translate(_SHOWN).decode("ascii"))
        line.append("   " * (start + BYTES_PER_LINE - end) + "  ")
        yield line.append_text(shown)


_SHOWN = bytes(byte if 0x20 <= byte < 0x7F else ord(".") for byte in range(256))


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
