"""`stratamq dump index`: headers and items of index files."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli import dump_source as source
from stratamq.cli.dump_geometry import DumpGeometry, find_geometry
from stratamq.cli.dump_hex import INDEX_HEADER_SIZES, INDEX_ITEM_SIZES
from stratamq.cli.dump_output import Output, Printer, show_time
from stratamq.cli.dump_rows import Row, index_row, item_row, stop_row
from stratamq.cli.dump_walk import WalkEnd
from stratamq.cli.options import OutputOption
from stratamq.errors import CorruptRecordError, InvalidRequestError
from stratamq.formats.frame_fields import fields_of
from stratamq.formats.index_file import IndexFileView
from stratamq.formats.index_layout import (
    INDEX_HEADER_BYTES,
    INDEX_ITEM,
    INDEX_ITEM_BYTES,
    IndexHeader,
    IndexItem,
    decode_index_header,
    index_file_bytes,
    item_position,
)
from stratamq.formats.javahash import index_key_hash
from stratamq.option_groups import option_groups

HEADER_COLUMNS = ("number", "file", "length", "slots", "items", "beginTimestamp", "endTimestamp",
                  "beginPhyOffset", "endPhyOffset", "hashSlotCount", "indexCount")  # fmt: skip
ITEM_COLUMNS = ("file", "n", "slot", "keyHash", "phyOffset", "timeDiffSeconds", "storeTimestamp",
                "prev")  # fmt: skip

HexOption = Annotated[
    bool, typer.Option("--hex", help="Show the bytes as well, with the fields marked.")
]
FromOffset = Annotated[
    int | None, typer.Option("--from", min=0, help="Start at this physical offset.")
]
ToOffset = Annotated[
    int | None, typer.Option("--to", min=0, help="Stop before this physical offset.")
]


@dataclass(frozen=True, slots=True)
class ItemFilter:
    """Which items are shown."""

    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="TOPIC#KEY", help="Show only items with the hash of this key."
        ),
    ] = None
    offset: Annotated[
        int | None,
        typer.Option("--offset", min=0, help="Show only items with this physical offset."),
    ] = None
    first: FromOffset = None
    end: ToOffset = None

    def hash(self) -> int | None:
        """That an item must have; None: any. InvalidRequestError."""
        if self.key is not None and "#" not in self.key:
            raise InvalidRequestError("--key is TOPIC#KEY, as RocketMQ hashes it")
        return None if self.key is None else index_key_hash(self.key)

    def range(self) -> tuple[int, float]:
        """Physical offsets [first, end). InvalidRequestError."""
        if self.offset is None:
            return self.first or 0, math.inf if self.end is None else self.end
        if self.first is not None or self.end is not None:
            raise InvalidRequestError("--offset is one place; --from and --to are a range")
        return self.offset, self.offset + 1


ANY_ITEM = ItemFilter()


@option_groups
def dump_index(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Store directory, its index directory, or one file."),
    ],
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Number of hash slots in a file.")
    ] = None,
    items: Annotated[
        int | None, typer.Option("--items", min=1, help="Number of items in a file.")
    ] = None,
    chosen: ItemFilter = ANY_ITEM,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, help="Show at most this many items per file."),
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Show only headers.")] = False,
    output: OutputOption = Output.TABLE,
    show_hex: HexOption = False,
) -> None:
    """Headers and items of index files, oldest first; the times of items are whole seconds."""
    key_hash, (first, end) = chosen.hash(), chosen.range()
    header_printer = Printer(output, HEADER_COLUMNS)
    item_printer = Printer(output, ITEM_COLUMNS)
    stops: list[WalkEnd] = []
    for number, file in enumerate(source.index_files(path)):
        with source.mapped(file) as view:
            header = decode_index_header(view)
            if header is None:
                stops.append(WalkEnd(str(file), len(view), "shorter than a header", True))
                continue
            geometry = find_geometry(file, view, slots, items)
            row = index_row(number, file.name, len(view), header)
            row |= {"slots": geometry.slots, "items": geometry.items}
            row |= {"geometryFrom": geometry.source}
            fields = fields_of(INDEX_HEADER_SIZES) if show_hex else []
            stops += _faults(file, view, header, geometry)
            if headers or show_hex or output is Output.JSON:
                header_printer.row(row, bytes(view[:INDEX_HEADER_BYTES]), fields)
            else:
                item_printer.note(row, _sentence(row), False)
            if headers:
                continue
            shown = 0
            for item in _items(view, header, geometry):
                if key_hash is not None and item.key_hash != key_hash:
                    continue
                if not first <= item.physical_offset < end:
                    continue
                place = item_position(item.number, geometry.slots)
                item_printer.row(
                    item_row(file.name, item, geometry.slots, header.begin_timestamp_ms),
                    bytes(view[place : place + INDEX_ITEM_BYTES]),
                    fields_of(INDEX_ITEM_SIZES) if show_hex else [],
                    place,
                )
                shown += 1
                if shown == count:
                    break
            item_printer.flush()
    header_printer.flush()
    tell_damage(item_printer, stops)


def tell_damage(printer: Printer, stops: Sequence[WalkEnd]) -> None:
    """Where files are damaged; with exit code 1, if any is."""
    for stop in stops:
        sentence = f"{stop.file} damaged at byte {stop.position}: {stop.reason}"
        printer.note(stop_row(stop), sentence, True)
    if stops:
        raise typer.Exit(1)


def _sentence(row: Row) -> str:
    """The header in one line, above the items."""
    begin, end = show_time(row["beginTimestamp"]), show_time(row["endTimestamp"])
    return (
        f"index {row['number']}, {row['file']}: {row['slots']} slots, {row['items']} items "
        f"({row['geometryFrom']}); in use {row['hashSlotCount']} slots, next item "
        f"{row['indexCount']}; times {begin} to {end}, "
        f"offsets {row['beginPhyOffset']} to {row['endPhyOffset']}"
    )


def _items(view: memoryview, header: IndexHeader, geometry: DumpGeometry) -> Iterator[IndexItem]:
    """Those that the header counts and the file has room for."""
    for number in range(1, min(header.next_item, geometry.items)):
        place = item_position(number, geometry.slots)
        if place + INDEX_ITEM_BYTES > len(view):
            return
        yield IndexItem(number, *INDEX_ITEM.unpack_from(view, place))


def _faults(
    file: Path, view: memoryview, header: IndexHeader, geometry: DumpGeometry
) -> Iterator[WalkEnd]:
    expected = index_file_bytes(geometry.slots, geometry.items)
    if len(view) != expected:
        reason = (
            f"the file has {len(view)} bytes, but {geometry.slots} slots and {geometry.items} "
            f"items ({geometry.source}) make {expected}"
        )
        yield WalkEnd(str(file), min(len(view), expected), reason, True)
    if header.index_count > geometry.items:
        reason = f"indexCount is {header.index_count}, but there is room for {geometry.items}"
        yield WalkEnd(str(file), INDEX_HEADER_BYTES - 4, reason, True)
    try:
        fits = IndexFileView(view, geometry.slots, geometry.items).has_geometry_of_its_items()
    except CorruptRecordError:
        return
    if not fits:
        reason = (
            f"not every item hangs in the slot of its hash: damage, or the file does not have "
            f"{geometry.slots} slots and {geometry.items} items ({geometry.source})"
        )
        yield WalkEnd(str(file), INDEX_HEADER_BYTES, reason, True)
