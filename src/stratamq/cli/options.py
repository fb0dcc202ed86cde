"""How commands find their broker, and the options that all of them have."""

from pathlib import Path
from typing import Annotated

import typer

from stratamq.cli.broker import ADDRESS_VARIABLE, DATA_VARIABLE, DEFAULT_DATA
from stratamq.cli.dump_output import Output
from stratamq.client import Client
from stratamq.errors import InvalidRequestError
from stratamq.rpc.endpoints import Endpoints, parse_target

DataOption = Annotated[
    Path,
    typer.Option(
        "--data",
        "-d",
        envvar=DATA_VARIABLE,
        help="the broker's store directory, in which its services announce themselves",
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        envvar=ADDRESS_VARIABLE,
        metavar="HOST:PORT",
        help="instead of --data: the log service, or "
        "commitlog=HOST:PORT,dispatcher=HOST:PORT,index=HOST:PORT",
    ),
]
OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="tables for people, JSON lines for programs")
]
DEFAULT = Path(DEFAULT_DATA)
OPERATORS = "For operators"
"""The part of `stratamq --help` with commands that change what a broker is."""
BUILDERS = "For those who build StrataMQ"


def endpoints(data: Path, address: str | None) -> Endpoints:
    """Where the broker is; InvalidRequestError when no option or run file names it."""
    if address is not None:
        return parse_target(address)
    if not data.is_dir():
        raise InvalidRequestError(
            f"there is no store directory {data}: name one with --data or {DATA_VARIABLE}, "
            "or start a broker with `stratamq up`"
        )
    return parse_target(data)


def open_client(data: Path, address: str | None, patience_s: float = 2.0) -> Client:
    """Nothing is connected yet."""
    return Client(endpoints(data, address), patience_s=patience_s)
