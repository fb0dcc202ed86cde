"""`stratamq dump`: what is in the files of a store, RocketMQ's or ours, read and never written.

Needs no service. Damaged files are shown as far as they go; a line reports where and why that ends,
and the exit code is then 1.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli import dump_source as source
from stratamq.cli.dump_hex import BLANK_FIELDS, CHECKPOINT_SIZES, STATE_SIZES, UNIT_SIZES
from stratamq.cli.dump_index import FromOffset, HexOption, ToOffset, dump_index, tell_damage
from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import (
    Row,
    checkpoint_row,
    frame_row,
    message_row,
    state_row,
    stop_row,
    unit_row,
)
from stratamq.cli.dump_walk import Record, WalkedUnit, WalkEnd, record_at, walk_log, walk_queue
from stratamq.cli.options import BodyOption, DetailOption, OutputOption
from stratamq.errors import (
    CorruptionError,
    InvalidRequestError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from stratamq.formats.checkpoint import (
    CHECKPOINT_FIELDS_BYTES,
    CHECKPOINT_FILE_BYTES,
    decode_checkpoint,
)
from stratamq.formats.frame_fields import fields_of, frame_fields
from stratamq.formats.queue_unit import encode_queue_unit
from stratamq.formats.shown_bodies import BodyAs
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq.formats.sysflag import TRANSACTION_PREPARED
from stratamq.formats.transaction_state import STATE_UNIT_BYTES, iter_states
from stratamq.option_groups import option_groups

FRAME_COLUMNS = ("phyOffset", "size", "topic", "queueId", "queueOffset", "tagsCode", "keys",
                 "sysFlag", "storeTimestamp", "body")  # fmt: skip
MESSAGE_COLUMNS = ("topic", "queueId", "at", "phyOffset", "size", "tagsCode", "storeTimestamp",
                   "properties", "body")  # fmt: skip
UNIT_COLUMNS = ("topic", "queueId", "at", "cqPhyOffset", "cqSize", "tagsCode")
TRANSACTION_COLUMNS = ("at", "state", "phyOffset", "size", "storeTimestamp", "groupHash")

StorePath = Annotated[
    Path,
    typer.Argument(metavar="PATH", help="Store directory, a directory inside it, or one file."),
]
CountOption = Annotated[
    int | None, typer.Option("--count", "-n", min=1, help="Show at most this many.")
]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", help="Show only this topic.")]
QueueOption = Annotated[
    int | None, typer.Option("--queue", "-q", min=0, help="Show only this queue.")
]
FromIndex = Annotated[int, typer.Option("--from", min=0, help="Start at this queue index.")]
ToIndex = Annotated[int | None, typer.Option("--to", min=0, help="Stop before this queue index.")]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which units of which queues are shown."""

    topic: TopicOption = None
    queue_id: QueueOption = None
    first: FromIndex = 0
    end: ToIndex = None
    count: CountOption = None


EVERYTHING = Chosen()

dump_app = typer.Typer(
    help="Show what a store's files contain; needs no service and changes nothing.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(dump_app, name="dump")


@dump_app.command("commitlog")
def dump_commitlog(
    path: StorePath,
    offset: Annotated[
        int | None,
        typer.Option("--offset", min=0, help="Show the frame that begins at this offset."),
    ] = None,
    first: FromOffset = None,
    end: ToOffset = None,
    count: CountOption = None,
    output: OutputOption = Output.TABLE,
    show_hex: HexOption = False,
    detail: DetailOption = False,
    body: BodyOption = BodyAs.AUTO,
) -> None:
    """Show frames and blanks of the commit log, in order."""
    if offset is not None and (first is not None or end is not None):
        raise InvalidRequestError("--offset is one place; --from and --to are a range")
    files = source.log_files(path)
    cards = detail or (offset is not None and count is None)
    with printing(Printer(output, FRAME_COLUMNS, cards)) as run:
        if offset is not None:
            record = record_at(files, offset, explain=True)
            if count is None:
                run.frame(record, body, show_hex)
                return
            first = offset
        left = count
        for found in walk_log(files, first, end):
            if isinstance(found, WalkEnd):
                run.stop(found)
                continue
            run.frame(found, body, show_hex)
            if left is not None:
                left -= 1
                if left == 0:
                    return


@dump_app.command("consumequeue")
@option_groups
def dump_consumequeue(
    path: StorePath,
    chosen: Chosen = EVERYTHING,
    output: OutputOption = Output.TABLE,
    show_hex: HexOption = False,
) -> None:
    """Show units of consume queues; --from, --to and --count apply to each queue."""
    with printing(Printer(output, UNIT_COLUMNS)) as run:
        for queue in source.queues(path, chosen.topic, chosen.queue_id):
            for found in islice(walk_queue(queue, chosen.first, chosen.end), chosen.count):
                if isinstance(found, WalkEnd):
                    run.stop(found)
                    continue
                unit = found.unit
                raw = encode_queue_unit(unit.physical_offset, unit.size, unit.tags_code)
                fields = fields_of(UNIT_SIZES) if show_hex else []
                run.printer.row(unit_row(found), raw, fields, found.queue_index * len(raw))


@dump_app.command("messages")
@option_groups
def dump_messages(
    path: StorePath,
    chosen: Chosen = EVERYTHING,
    output: OutputOption = Output.TABLE,
    show_hex: HexOption = False,
    detail: DetailOption = False,
    body: BodyOption = BodyAs.AUTO,
) -> None:
    """Show messages through their consume queues; --from, --to and --count apply to each queue."""
    source.must_exist(path)
    if not (path / COMMIT_LOG).is_dir():
        raise NotFoundError(f"{path}: not the root of a store: it has no commitlog directory")
    files = source.log_files(path)
    with printing(Printer(output, MESSAGE_COLUMNS, detail)) as run:
        for queue in source.queues(path, chosen.topic, chosen.queue_id):
            left = chosen.count
            for found in walk_queue(queue, chosen.first, chosen.end):
                if isinstance(found, WalkEnd):
                    run.stop(found)
                    continue
                if found.unit.is_pre_blank:
                    continue
                run.message(found, files, body, show_hex)
                if left is not None:
                    left -= 1
                    if left == 0:
                        break


dump_app.command("index")(dump_index)


@dump_app.command("transactions")
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
    printer = Printer(output, TRANSACTION_COLUMNS)
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


@dump_app.command("checkpoint")
def dump_checkpoint(
    path: StorePath, output: OutputOption = Output.TABLE, show_hex: HexOption = False
) -> None:
    """Show the times and offsets of the checkpoint."""
    file = source.checkpoint_file(path)
    with source.mapped(file) as view:
        raw = bytes(view[:CHECKPOINT_FIELDS_BYTES])
        length = len(view)
    checkpoint = decode_checkpoint(raw)
    if checkpoint is None:
        raise CorruptionError(
            f"{file}: {length} bytes, a checkpoint has {CHECKPOINT_FILE_BYTES}", str(file), length
        )
    with printing(Printer(output, (), cards=True)) as run:
        run.printer.row(
            checkpoint_row(checkpoint), raw, fields_of(CHECKPOINT_SIZES) if show_hex else []
        )
        if length != CHECKPOINT_FILE_BYTES:
            reason = f"{length} bytes, a checkpoint has {CHECKPOINT_FILE_BYTES}"
            run.stop(WalkEnd(str(file), length, reason, True))


class DumpRun:
    """One dump: prints, and remembers whether it met damage."""

    def __init__(self, printer: Printer) -> None:
        self.printer = printer
        self.met_damage = False

    def frame(self, record: Record, body_as: BodyAs, show_hex: bool) -> None:
        self._record(frame_row(record, body_as), record, show_hex)

    def message(
        self, unit: WalkedUnit, files: list[source.LogFile], body_as: BodyAs, show_hex: bool
    ) -> None:
        place = unit.unit.physical_offset
        try:
            record = record_at(files, place)
        except (NotFoundError, OffsetOutOfRangeError) as error:
            self._lost(unit, str(error))
            return
        if record.frame is None:
            self._lost(unit, f"at offset {place} the file ends with a blank")
            return
        self._record(message_row(unit, record, body_as), record, show_hex)

    def stop(self, stop: WalkEnd) -> None:
        self.met_damage |= stop.is_damage
        what = "damaged" if stop.is_damage else "ends"
        place = "" if stop.offset is None else f" (offset {stop.offset})"
        sentence = f"{stop.file} {what} at byte {stop.position}{place}: {stop.reason}"
        self.printer.note(stop_row(stop), sentence, stop.is_damage)

    def _record(self, row: Row, record: Record, show_hex: bool) -> None:
        self.met_damage |= not row["ok"] or row.get("propertyCrcOk") is False
        fields = []
        if show_hex:
            fields = BLANK_FIELDS if record.frame is None else frame_fields(record.frame)
        self.printer.row(row, record.raw, fields, record.offset)

    def _lost(self, unit: WalkedUnit, reason: str) -> None:
        self.met_damage = True
        row = unit_row(unit) | {"kind": "lost", "reason": reason}
        where = f"topic {unit.queue.topic}, queue {unit.queue.queue_id}, index {unit.queue_index}"
        self.printer.note(row, f"{where}: {reason}", True)


@contextmanager
def printing(printer: Printer):
    """Prints what is left at the end, also after an error; exit code 1 when damage was met."""
    run = DumpRun(printer)
    try:
        yield run
    finally:
        printer.flush()
    if run.met_damage:
        raise typer.Exit(1)
