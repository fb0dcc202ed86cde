"""Commands that take something away ask first."""

import sys
from typing import Annotated

import typer

from stratamq.errors import InvalidRequestError

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]


def confirm(question: str, yes: bool) -> None:
    """Return when it is wanted. InvalidRequestError without a terminal to ask on; typer.Abort for
    a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequestError(f"{question} No terminal to confirm on: add --yes")
    typer.confirm(f"{question} Continue?", abort=True, err=True)
