"""`stratamq groups dlq`: what a shared group's workers failed at too often, and handing it out
again."""

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from stratamq.cli.completing import GroupArgument
from stratamq.cli.dump_output import Output
from stratamq.cli.dump_rows import Row, fields_of
from stratamq.cli.listings import show
from stratamq.cli.options import HERE, BrokerTarget, OutputOption
from stratamq.client import Client, DeadLetter, DeadLetterReplay
from stratamq.errors import NotFoundError
from stratamq.option_groups import option_groups

COLUMNS = (
    *("place", "offset", "originTopic", "storeTimestamp", "attempts", "replays"),
    *("messageId", "originMessageId", "keys"),
)
REPLAY_COLUMNS = ("place", "replayed", "refusal")
PAGE = 1_000
AT_ONCE = 256

dead_letters_app = typer.Typer(
    help="List the dead letters of a shared group, and hand them out again.", no_args_is_help=True
)


@dead_letters_app.command("list")
@option_groups
def list_dead_letters(
    group: GroupArgument,
    begin: Annotated[
        int, typer.Option("--from", min=0, help="Begin at this offset of the dead-letter topic.")
    ] = 0,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=PAGE, help="List so many at most.")
    ] = 100,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """List what workers of the group failed at too often, oldest first: from which topic, when it
    was buried, after how many attempts, and how often it was replayed."""
    with place.client() as client:
        found = client.admin.dead_letters(group, begin, limit)
    rows: list[Row] = [
        {"kind": "deadLetter", "group": group, **fields_of(one, {"queue_offset": "offset"})}
        for one in found.letters
    ]
    show(output, COLUMNS, rows, "the group has no dead letters")
    if found.next_offset:
        print(f"there are more: --from {found.next_offset}", file=sys.stderr)


@dead_letters_app.command("replay")
@option_groups
def replay(
    group: GroupArgument,
    messages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MESSAGE]...",
            help="Places or message ids, as `groups dlq list` shows them; they are replayed also if"
            " they were before. The default is those that were not, oldest first.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Without messages: replay so many at most.")
    ] = 100,
    place: BrokerTarget = HERE,
    output: OutputOption = Output.TABLE,
) -> None:
    """Hand dead letters out again, to the workers of this group alone; durable on return. They stay
    in the dead-letter topic. Exit code 1 if one was not replayed."""
    with place.client() as client:
        if messages:
            outcomes = _named(client, group, messages)
        else:
            outcomes = _oldest(client, group, limit)
    rows: list[Row] = [
        {"kind": "replay", "group": group, **fields_of(one, replayed=not one.refusal)}
        for one in outcomes
    ]
    show(output, REPLAY_COLUMNS, rows, "every dead letter of the group was replayed before")
    if any(one.refusal for one in outcomes):
        raise typer.Exit(1)


def _oldest(client: Client, group: str, limit: int) -> list[DeadLetterReplay]:
    """The first that were not replayed. Ends with one that is refused: it would come again."""
    outcomes: list[DeadLetterReplay] = []
    while len(outcomes) < limit:
        some = client.admin.replay_dead_letters(group, (), min(AT_ONCE, limit - len(outcomes)))
        outcomes += some
        if not some or any(one.refusal for one in some):
            break
    return outcomes


def _named(client: Client, group: str, messages: list[str]) -> list[DeadLetterReplay]:
    places = [one for one in messages if ":" in one]
    ids, known = {*messages} - {*places}, set[str]()
    for letter in _all(client, group) if ids else ():
        names = ids & {letter.message_id, letter.origin_message_id}
        places += [letter.place] if names else []
        known |= names
    if unknown := ids - known:
        raise NotFoundError(f"no dead letter of group {group} has the id {min(unknown)}")
    return [
        outcome
        for start in range(0, len(places), AT_ONCE)
        for outcome in client.admin.replay_dead_letters(group, places[start : start + AT_ONCE])
    ]


def _all(client: Client, group: str) -> Iterator[DeadLetter]:
    begin = 0
    while True:
        page = client.admin.dead_letters(group, begin, PAGE)
        yield from page.letters
        if not page.next_offset:
            return
        begin = page.next_offset
