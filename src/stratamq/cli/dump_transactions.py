"""`stratamq dump transactions`: what RocketMQ 3.1 knew of its transactions."""

from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli import dump_source as source
from stratamq.cli.dump_hex import STATE_SIZES
from stratamq.cli.dump_index import HexOption, tell_damage
from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import state_row
from stratamq.cli.dump_walk import WalkEnd
from stratamq.cli.options import OutputOption
from stratamq.formats.frame_fields import fields_of
from stratamq.formats.sysflag import TRANSACTION_PREPARED
from stratamq.formats.transaction_state import STATE_UNIT_BYTES, iter_states

COLUMNS = ("at", "state", "phyOffset", "size", "storeTimestamp", "groupHash")


def dump_transactions(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="Store directory, transaction/statetable inside it, or one file."
        ),
    ],
    undecided: Annotated[
        bool,
        typer.Option("--undecided", help="Show only what was neither committed nor rolled back."),
    ] = False,
    output: OutputOption = Output.TABLE,
    show_hex: HexOption = False,
) -> None:
    """Show the state table of transactions of RocketMQ 3.1: one row for each prepared message."""
    printer = Printer(output, COLUMNS)
    fields = fields_of(STATE_SIZES) if show_hex else []
    stops: list[WalkEnd] = []
    for start, file in source.state_files(path):
        with source.mapped(file) as view:
            position = 0
            for unit in iter_states(view):
                if unit.state == TRANSACTION_PREPARED or not undecided:
                    row = state_row((start + position) // STATE_UNIT_BYTES, unit)
                    raw = bytes(view[position : position + STATE_UNIT_BYTES])
                    printer.row(row, raw, fields, start + position)
                position += STATE_UNIT_BYTES
            if any(view[position : position + STATE_UNIT_BYTES]):
                stops.append(WalkEnd(str(file), position, "no unit of a state table", True))
    printer.flush()
    tell_damage(printer, stops)
