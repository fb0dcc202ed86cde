"""How commands find their broker, and the options that several of them have."""

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.dump_output import Output
from stratamq.cli.exit_codes import code_of, lines_of
from stratamq.cli.profiles import ADDRESS_VARIABLE, DATA_VARIABLE, DEFAULT_DATA, selected_place
from stratamq.client import Client, connect
from stratamq.client.checking import LONGEST_S
from stratamq.errors import InvalidRequestError, StrataError
from stratamq.formats.shown_bodies import BodyAs
from stratamq.rpc.endpoints import Endpoints, parse_target


def _data_of_profile(context: typer.Context, value: Path) -> Path:
    given = _is_given(context, "data") or _is_given(context, "address")
    place = {} if given or context.resilient_parsing else _place(context)
    return Path(place.get("data", value))


def _address_of_profile(context: typer.Context, value: str | None) -> str | None:
    given = _is_given(context, "data") or _is_given(context, "address")
    place = {} if given or context.resilient_parsing else _place(context)
    return place.get("address", value)


def _place(context: typer.Context) -> dict[str, str]:
    return selected_place(context.find_root().params.get("profile"))


def _is_given(context: typer.Context, name: str) -> bool:
    """On the command line or by the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


DataOption = Annotated[
    Path,
    typer.Option(
        "--data",
        "-d",
        envvar=DATA_VARIABLE,
        callback=_data_of_profile,
        help="Find a local broker by its store directory.",
    ),
]
LocalDataOption = Annotated[
    Path,
    typer.Option("--data", "-d", envvar=DATA_VARIABLE, help="Set the broker's store directory."),
]
"""For what needs the directory itself: profiles may name an address."""
StoppedDataOption = Annotated[
    Path,
    typer.Option("--data", "-d", envvar=DATA_VARIABLE, help="Store directory of a stopped broker."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        envvar=ADDRESS_VARIABLE,
        callback=_address_of_profile,
        metavar="HOST:PORT",
        help="Connect to this address of any service of the broker, instead of --data. "
        "Several brokers: HOST:PORT,HOST:PORT; single services: "
        "commitlog=HOST:PORT,dispatcher=HOST:PORT,…",
    ),
]
BrokerOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Select one broker by name; the default is all brokers.",
    ),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output", "-o", help="Choose the format: a table for people, JSON lines for programs."
    ),
]
MessageIdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Message ID: 32 or 56 hexadecimal digits.")
]
LogOffsetArgument = Annotated[
    int, typer.Argument(metavar="N", min=0, help="Physical offset, in bytes of the log.")
]
BodyOption = Annotated[
    BodyAs, typer.Option("--body", help="Choose how to show bodies (decompressed).")
]
DetailOption = Annotated[bool, typer.Option("--detail", help="Show every field, one per line.")]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", exists=True, dir_okay=False, help="Read settings from this TOML file."
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SERVICE.SETTING=VALUE", help="Change one setting; repeatable."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
CLEAR_SCREEN = "\x1b[H\x1b[2J"
LONGEST_PAUSE_S = 86_400.0
"""A day: no clock waits for what the largest numbers say."""
DEFAULT = Path(DEFAULT_DATA)
OPERATORS = "Operation"
"""The part of `stratamq --help` with commands that change what a broker is."""
BUILDERS = "Development"


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """Which broker a command is for: the options --data, --address and --broker."""

    data: DataOption
    address: AddressOption = None
    broker: BrokerOption = ""

    def endpoints(self) -> Endpoints:
        """Where the broker is; InvalidRequestError when no option or run file names it."""
        if self.address is not None:
            return parse_target(self.address, self.broker)
        if not self.data.is_dir():
            raise InvalidRequestError(
                f"there is no store directory {self.data}: name one with --data or "
                f"{DATA_VARIABLE}, or start a broker with `stratamq up`"
            )
        return parse_target(self.data, self.broker)

    def client(self, retry_timeout_s: float = 2.0, timeout_s: float = 30.0) -> Client:
        """Nothing is connected yet. InvalidRequestError as `endpoints`."""
        self.endpoints()
        return connect(
            self.data if self.address is None else self.address,
            broker=self.broker,
            retry_timeout_s=retry_timeout_s,
            timeout_s=timeout_s,
        )


HERE = BrokerTarget(DEFAULT)


def seconds(given: float | None) -> float | None:
    """A callback for options: no range of typer's keeps nan out; inf is no limit."""
    if given is None:
        return None
    if math.isnan(given):
        raise typer.BadParameter("nan is not a number of seconds")
    return min(given, LONGEST_S)


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


def confirm(question: str, yes: bool) -> None:
    """Return when it is wanted. InvalidRequestError without a terminal to ask on; typer.Abort for
    a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequestError(f"{question} No terminal to confirm on: add --yes")
    typer.confirm(f"{question} Continue?", abort=True, err=True)


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
