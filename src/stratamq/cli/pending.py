"""`stratamq pending`: what waits in a store, now or at a moment of the past, without a broker."""

import enum
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stratamq.cli.dump_output import Output
from stratamq.cli.listings import show
from stratamq.cli.moments import TIMES, parse_moment
from stratamq.cli.options import DEFAULT, DataOption, OutputOption
from stratamq.errors import InvalidRequestError
from stratamq.service.installed import past_states


class Kind(enum.StrEnum):
    DELAYED = "delayed"
    TRANSACTIONS = "transactions"
    HAND_OUTS = "hand-outs"


MESSAGE = ("topic", "queueId", "messageId", "keys", "phyOffset", "storeTimestamp")
HELD_COLUMNS = ("topic", "queueId", "offset", "count", "clientId", "attempt", "secondsLeft")
QUEUE_COLUMNS = ("topic", "queueId", "floor", "next", "unfinished")
COLUMNS = {
    Kind.DELAYED: ("dueTimestamp", "level", "held", *MESSAGE),
    Kind.TRANSACTIONS: ("group", "state", "checks", "held", *MESSAGE),
    Kind.HAND_OUTS: ("group", *HELD_COLUMNS),
}
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="OFFSET|@TIME",
        help="Show the state of the past: OFFSET is how many bytes the log had then;"
        f" TIME: {TIMES}. Reads the files of --data.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command("pending")(pending)


def pending(
    kind: Annotated[Kind, typer.Argument(help="Show messages of this kind.")],
    data: DataOption = DEFAULT,
    at: AtOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List messages that wait: delayed ones, halves of open transactions, or those that workers of
    shared groups hold. Reads the log's files from their beginning, so that it needs no broker."""
    state = state_of(data, at)
    show(output, COLUMNS[kind], list(state.table(kind.value)), "nothing waits")


def state_of(data: Path, at: str | None) -> Any:
    """The `PastState` at a moment as people write it."""
    moment: dict[str, int] = {}
    if at is not None and at.startswith("@"):
        moment["time_ms"] = parse_moment(at[1:])
    elif at is not None:
        if not (at.isascii() and at.isdigit() and len(at) < 20):
            raise InvalidRequestError(f"--at {at}: an offset of the log, or @TIME: {TIMES}")
        moment["offset"] = int(at)
    state = past_states().state_at(data, **moment)
    if not state.groups_known:
        print(
            "warning: the log begins after this moment's groups did: what they hold may be missing",
            file=sys.stderr,
        )
    return state
