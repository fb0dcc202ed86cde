"""`stratamq profile`: names for brokers, so that a command need not say where its broker is.

Kept as JSON in `$XDG_CONFIG_HOME/stratamq/profiles.json` (`~/.config` without it):
`{"current": NAME or null, "profiles": {NAME: {"address": …} or {"data": …}}}`. A command takes the
first that there is: its options, STRATAMQ_DATA and STRATAMQ_ADDRESS, `stratamq --profile`,
STRATAMQ_PROFILE, the current profile.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stratamq.cli.dump_output import Output, Printer
from stratamq.errors import ConfigurationError, InvalidRequestError, NotFoundError
from stratamq.rpc.endpoints import parse_target

PROFILE_VARIABLE = "STRATAMQ_PROFILE"
COLUMNS = ("profile", "current", "address", "data")

profile_app = typer.Typer(help="Manage names for brokers.", no_args_is_help=True)
DEFAULT_DATA = "stratamq-data"
DATA_VARIABLE = "STRATAMQ_DATA"
ADDRESS_VARIABLE = "STRATAMQ_ADDRESS"


def register(app: typer.Typer) -> None:
    app.add_typer(profile_app, name="profile")


def profiles_path() -> Path:
    """ConfigurationError of a user without a home directory."""
    folder = os.getenv("XDG_CONFIG_HOME")
    try:
        return Path(folder or Path.home() / ".config") / "stratamq" / "profiles.json"
    except RuntimeError as error:
        raise ConfigurationError(
            [
                "there is no directory for profiles: set HOME or XDG_CONFIG_HOME, this user has "
                "no home directory"
            ]
        ) from error


class Profiles:
    """What the file holds."""

    def __init__(self, path: Path) -> None:
        """ConfigurationError when there is a file that is none of ours."""
        self._path = path
        document: Any = {"current": None, "profiles": {}}
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            self.current: str | None = document["current"]
            self.places = {str(name): dict(place) for name, place in document["profiles"].items()}
        except FileNotFoundError:
            self.current, self.places = None, {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigurationError(
                [f"{path} cannot be read as profiles ({error}): correct it, or move it away"]
            ) from error

    def save(self) -> None:
        """The old file or the new one is there, whatever happens."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {"current": self.current, "profiles": self.places}
        temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, self._path)

    def place(self, name: str) -> dict[str, str]:
        """NotFoundError with those that there are."""
        if name not in self.places:
            known = ", ".join(sorted(self.places)) or "there is none"
            raise NotFoundError(f"there is no profile {name} ({known}): see `stratamq profile add`")
        return self.places[name]


def selected_place(wanted: str | None) -> dict[str, str]:
    """`data` or `address` of the profile that is in force; nothing when none is."""
    name = wanted or os.getenv(PROFILE_VARIABLE)
    try:
        path = profiles_path()
    except ConfigurationError:
        if name:
            raise
        return {}
    profiles = Profiles(path)
    name = name or profiles.current
    return profiles.place(name) if name else {}


@profile_app.command("list")
def list_profiles(
    output: Annotated[
        Output,
        typer.Option(
            "--output", "-o", help="Choose the format: a table for people, JSON lines for programs."
        ),
    ] = Output.TABLE,
) -> None:
    """List all profiles, and which one is used when a command names no broker."""
    profiles = Profiles(profiles_path())
    printer = Printer(output, COLUMNS)
    for name, place in sorted(profiles.places.items()):
        row = {"kind": "profile", "profile": name, "current": name == profiles.current}
        printer.row(row | {"address": place.get("address", ""), "data": place.get("data", "")})
    printer.flush()
    if not profiles.places:
        typer.echo("there is no profile: `stratamq profile add NAME --address HOST:PORT`", err=True)


@profile_app.command("add")
def add_profile(
    name: str,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT[,…]", help="Address of the broker.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", "-d", help="Store directory of the broker.")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make this the current profile.")] = False,
) -> None:
    """Add a profile for a broker, by its address or its store directory; replaces one of that
    name.
    """
    if (address is None) == (data is None):
        raise InvalidRequestError("a profile has an --address or a --data directory, one of them")
    parse_target(address or data.absolute())
    profiles = Profiles(profiles_path())
    profiles.places[name] = {"address": address} if data is None else {"data": str(data.absolute())}
    if use or len(profiles.places) == 1:
        profiles.current = name
    profiles.save()
    state = "the current one" if profiles.current == name else f"`stratamq profile use {name}`"
    typer.echo(f"{name}: {address or data} ({state})")


@profile_app.command("use")
def use_profile(
    name: Annotated[str, typer.Argument(help="Profile, or `none` to clear the current one.")],
) -> None:
    """Make a profile the current one."""
    profiles = Profiles(profiles_path())
    if name != "none":
        profiles.place(name)
    profiles.current = None if name == "none" else name
    profiles.save()


@profile_app.command("remove")
def remove_profile(name: str) -> None:
    """Remove a profile; the broker itself is not touched."""
    profiles = Profiles(profiles_path())
    profiles.place(name)
    del profiles.places[name]
    if profiles.current == name:
        profiles.current = None
    profiles.save()
