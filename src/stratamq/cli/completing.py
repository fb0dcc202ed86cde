"""What a shell offers for a name: the topics and groups of the broker that the line names so far.

A broker that is away, or slow, offers nothing: a shell must not wait, and has no place for errors.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.options import DEFAULT, BrokerTarget
from stratamq.client import Client
from stratamq.errors import StrataError

ANSWER_S = 1.0


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    return _names(context, incomplete, lambda client: (one.name for one in client.topics()))


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    return _names(context, incomplete, lambda client: (one.group for one in client.groups()))


def _names(
    context: typer.Context, incomplete: str, names: Callable[[Client], Iterable[str]]
) -> list[str]:
    data = Path(context.params.get("data") or DEFAULT)
    try:
        broker = context.params.get("broker") or ""
        address = context.params.get("address")
        with BrokerTarget(data, address, broker).client(0.0, ANSWER_S) as client:
            return sorted({name for name in names(client) if name.startswith(incomplete)})
    except StrataError:
        return []


TopicArgument = Annotated[str, typer.Argument(autocompletion=topic_names)]
GroupArgument = Annotated[str, typer.Argument(autocompletion=group_names)]
