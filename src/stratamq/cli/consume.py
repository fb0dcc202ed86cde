"""`stratamq consume`: the messages of a topic, as they lie there or as they come."""

from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import BodyAs
from stratamq.cli.message_rows import COLUMNS, message_row
from stratamq.cli.moments import parse_moment
from stratamq.cli.options import DEFAULT, AddressOption, DataOption, OutputOption, open_client
from stratamq.client import EARLIEST, LATEST, AtTime
from stratamq.client.consuming import Start
from stratamq.errors import InvalidRequestError

PATIENCE_S = 30.0


def register(app: typer.Typer) -> None:
    app.command("consume")(consume)


def consume(
    topic: str,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="go on where this group was, and commit how far"),
    ] = None,
    offset: Annotated[
        str,
        typer.Option(
            metavar="earliest|latest|N|@TIME",
            help="where to begin where the group has not been: N is an offset in every queue, "
            "@TIME like @2013-01-31T10:00 (UTC) or @ milliseconds",
        ),
    ] = EARLIEST,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", "-t", help="only these tags; may be repeated")
    ] = None,
    queues: Annotated[
        list[int] | None, typer.Option("--queue", "-q", min=0, help="only these; may be repeated")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="wait for more, until Ctrl-C")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="stop after so many")
    ] = None,
    body: Annotated[BodyAs, typer.Option(help="how to show bodies (decompressed)")] = BodyAs.AUTO,
    data: DataOption = DEFAULT,
    address: AddressOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the messages of a topic, each queue in order.

    Exit code 0 also when there are none; 1 when the topic does not exist or the broker is away.
    """
    printer = Printer(output, COLUMNS)
    given = 0
    with open_client(data, address) as client:
        reader = client.consume(
            topic,
            queues=queues or None,
            offset=parse_start(offset),
            tags=tags or (),
            follow=follow,
            group=group,
            patience_s=PATIENCE_S,
        )
        with reader:
            try:
                for message in reader:
                    printer.row(message_row(message, body))
                    if follow:
                        printer.flush()
                    given += 1
                    if given == count:
                        break
            except KeyboardInterrupt:
                if not follow:
                    raise
    printer.flush()


def parse_start(text: str) -> Start:
    """InvalidRequestError for what is no place to begin."""
    if text in (EARLIEST, LATEST):
        return text
    if text.startswith("@"):
        return AtTime(parse_moment(text[1:]))
    if text.isascii() and text.isdigit():
        return int(text)
    raise InvalidRequestError(f"--offset {text}: earliest, latest, a number, or @TIME")
