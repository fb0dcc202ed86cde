"""`--watch`: a listing again and again, until Ctrl-C."""

import sys
import threading
from collections.abc import Callable
from typing import Annotated

import typer

from stratamq.cli.exit_codes import code_of, lines_of
from stratamq.cli.options import seconds
from stratamq.errors import StrataError

CLEAR_SCREEN = "\x1b[H\x1b[2J"
LONGEST_PAUSE_S = 86_400.0
"""A day: no clock waits for what the largest numbers say."""

WatchOption = Annotated[
    float | None,
    typer.Option(
        "--watch",
        "-w",
        metavar="SECONDS",
        min=0.1,
        max=LONGEST_PAUSE_S,
        callback=seconds,
        help="Refresh every this many seconds until Ctrl-C.",
    ),
]


def shown(show: Callable[[], int], every_s: float | None) -> None:
    """Run `show`, which gives an exit code, once; or every `every_s` seconds, each time on an empty
    screen. A broker that is away meanwhile is an error line, and is asked again."""
    pause = threading.Event()
    code = 0
    try:
        while True:
            try:
                code = show()
            except StrataError as error:
                if every_s is None:
                    raise
                print(*lines_of(error), sep="\n")
                code = code_of(error)
            if every_s is None:
                break
            sys.stdout.flush()
            pause.wait(every_s)
            print(CLEAR_SCREEN if sys.stdout.isatty() else "", flush=True)
    except KeyboardInterrupt:
        if every_s is None:
            raise
    if code:
        raise typer.Exit(code)
