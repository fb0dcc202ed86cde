"""`stratamq consume`: the messages of a topic, as they lie there or as they come."""

import sys
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.cli.dump_rows import BodyAs
from stratamq.cli.message_rows import COLUMNS, message_row
from stratamq.cli.moments import parse_start
from stratamq.cli.options import DEFAULT, AddressOption, DataOption, OutputOption, open_client
from stratamq.client import EARLIEST, Client
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
        str | None,
        typer.Option(
            metavar="earliest|latest|N|@TIME",
            help="where to begin, earliest unless given; refused with a group that has been here: "
            "N is an offset in every queue, @TIME like @2013-01-31T10:00 (UTC) or @ milliseconds",
        ),
    ] = None,
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
    start = parse_start(offset if offset is not None else EARLIEST)
    with open_client(data, address) as client:
        if group is not None and offset is not None:
            _require_new_group(client, group, topic, offset)
        reader = client.consume(
            topic,
            queues=queues or None,
            offset=start,
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
    if not given and not follow:
        print(f"no message of {topic} was read: {_why_none(group, queues, tags)}", file=sys.stderr)


def _require_new_group(client: Client, group: str, topic: str, offset: str) -> None:
    if client.committed_offsets(group, topic):
        raise InvalidRequestError(
            f"the group {group} has read {topic} before, and continues where it was: leave out "
            f"--offset, or set its place with `stratamq groups reset {group} --topic {topic} "
            f"--to {offset}`"
        )


def _why_none(group: str | None, queues: list[int] | None, tags: list[str] | None) -> str:
    reasons = [
        f"the group {group} is at the end" if group is not None else "",
        "the queues that were named have none" if queues else "",
        "none has one of the tags" if tags else "",
    ]
    return ", or ".join(filter(None, reasons)) or "it has none at or behind the offset"
