"""How `dump` prints: tables and cards for people, a JSON object a line for programs."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stratamq.cli.dump_hex import hex_lines, legend_lines
from stratamq.cli.dump_rows import Row
from stratamq.formats.frame_fields import Field

ROWS_PER_TABLE = 200
"""A table needs all its rows to find its widths; longer output comes in several tables."""
WIDTH_WITHOUT_TERMINAL = 200
MIN_TEXT_WIDTH = 12
MIN_LAST_WIDTH = 8
MIN_HEADING = 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def terminal(*, soft_wrap: bool = False) -> Console:
    """Standard output. Where it is no terminal it is as wide as COLUMNS, or wide enough."""
    console = _Console(highlight=False, markup=False, emoji=False, soft_wrap=soft_wrap)
    if not console.is_terminal:
        console.width = shutil.get_terminal_size((WIDTH_WITHOUT_TERMINAL, 24)).columns
    return console


class Printer:
    """Takes rows in order. `columns` are the row names a table shows; a card shows all of them."""

    def __init__(self, output: Output, columns: Sequence[str], cards: bool = False) -> None:
        self._output = output
        self._columns = columns
        self._cards = cards
        self._rows: list[Row] = []
        self._console = terminal(soft_wrap=cards)

    def row(self, row: Row, raw: bytes = b"", fields: Sequence[Field] = (), base: int = 0) -> None:
        """`raw` with `fields` is shown as hex when given; `base` numbers its first byte."""
        if self._output is Output.JSON:
            if fields:
                row = row | {
                    "hex": raw.hex(),
                    "fields": [[field.name, field.position, field.size] for field in fields],
                }
            print(json.dumps(row))
        elif self._cards or fields:
            self._card(row, raw, list(fields), base)
        else:
            self._rows.append(row)
            if len(self._rows) >= ROWS_PER_TABLE:
                self.flush()

    def note(self, row: Row, sentence: str, is_damage: bool) -> None:
        """Something about the files rather than in them; JSON gets `row`, people the sentence."""
        if self._output is Output.JSON:
            print(json.dumps(row))
        else:
            self.flush()
            self._console.print(Text(sentence, "bold red" if is_damage else "dim"), soft_wrap=True)

    def flush(self) -> None:
        """Everything so far is on standard output when this returns."""
        table = self._table() if self._rows else None
        if table is not None:
            self._console.print(table)
        else:
            for row in self._rows:
                self._card({name: row.get(name) for name in self._columns}, b"", [], 0)
        self._rows.clear()
        sys.stdout.flush()

    def _table(self) -> Table | None:
        """Numbers and times are shown whole; what does not fit is taken from the texts, from the
        last column first, then from headings. None when the terminal is too narrow even so."""
        cells = [[show(name, row.get(name)) for name in self._columns] for row in self._rows]
        widths = [
            max(cell_len(text) for text in texts)
            for texts in zip(self._columns, *cells, strict=True)
        ]
        texts = [
            number
            for number, name in enumerate(self._columns)
            if any(not isinstance(row.get(name), int | None) for row in self._rows)
        ]
        frame_width = 3 * len(widths) + 1
        too_wide = sum(widths) + frame_width - self._console.width
        least = [max([MIN_HEADING, *map(cell_len, row)]) for row in zip(*cells, strict=True)]
        for number in texts:
            least[number] = MIN_LAST_WIDTH if number == texts[-1] else MIN_TEXT_WIDTH
        for among in (texts[-1:], texts, range(len(widths))):
            while too_wide > 0 and any(widths[number] > least[number] for number in among):
                narrower = [number for number in among if widths[number] > least[number]]
                widths[max(narrower, key=lambda number: widths[number])] -= 1
                too_wide -= 1
        if too_wide > 0:
            return None
        table = Table(header_style="bold")
        for number, name in enumerate(self._columns):
            left = number in texts or name.endswith("Timestamp")
            table.add_column(
                name,
                justify="left" if left else "right",
                no_wrap=True,
                overflow="ellipsis",
                width=widths[number],
            )
        for row, line in zip(self._rows, cells, strict=True):
            table.add_row(*map(Text, line), style="red" if row.get("ok") is False else "")
        return table

    def _card(self, row: Row, raw: bytes, fields: list[Field], base: int) -> None:
        width = max(len(name) for name in row)
        for name, value in row.items():
            line = Text(f"{name:>{width}}  ", "bold")
            line.append(Text(show(name, value, whole=True), "not bold"))
            self._console.print(line, soft_wrap=True)
        if fields:
            for lines in (hex_lines(raw, fields, base), legend_lines(raw, fields, base)):
                self._console.print(Text("\n").join(lines), soft_wrap=True)
        self._console.print()


def show(name: str, value: Any, whole: bool = False) -> str:
    """A value as people read it: times with their date, nothing that drives a terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("Timestamp") and isinstance(value, int):
        moment = show_time(value)
        return f"{value} ({moment})" if whole and moment else moment or str(value)
    if isinstance(value, dict) and name == "properties":
        return printable("  ".join(f"{key}={text}" for key, text in value.items()))
    if isinstance(value, list) and name == "keys":
        return show(name, " ".join(value), whole)
    if isinstance(value, dict | list):
        return printable(json.dumps(value, ensure_ascii=False))
    text = str(value)
    return printable(text if whole else text[:200])


def show_time(timestamp_ms: int) -> str:
    """ISO time in UTC; empty for 0 and for what no calendar has."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z") if timestamp_ms else ""


def say(*lines: str) -> None:
    """On standard error. Where that takes nothing there is the exit code alone."""
    try:
        for line in lines:
            print(line, file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def drop(stream: TextIO) -> None:
    """The stream takes nothing: drop what is written to it, and what Python flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "backslashreplace").decode("ascii")
        for character in text
    )
