"""The command `stratamq`: finds the commands, and turns errors into one line.

Commands of this package are registered here; rooms add theirs through the entry-point group
`stratamq.commands`, each a function `register(app: typer.Typer) -> None`. No room is imported.
Exit codes: `exit_codes`.
"""

import importlib
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from stratamq.cli.dump_output import drop, printable, say
from stratamq.cli.exit_codes import (
    EXIT_BROKEN_PIPE,
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    code_of,
    lines_of,
)
from stratamq.cli.interrupts import raise_outside_locks
from stratamq.errors import StrataError
from stratamq.rpc.credentials import (
    CA_VARIABLE,
    CERTIFICATE_VARIABLE,
    KEY_VARIABLE,
    TOKEN_FILE_VARIABLE,
    choose,
)
from stratamq.rpc.request_ids import one_request
from stratamq.rpc.rooms import JANITOR

COMMANDS = {
    "up": "up",  # what people use every day
    "down": "background",
    "status": "status",
    "produce": "produce",
    "consume": "consume",
    "topics": "topics",
    "queues": "listings",
    "groups": "groups",
    "query": "query",
    "where": "where",
    "pending": "pending",
    "audit": "audit",
    "dump": "dump",
    "logs": "logs",
    "profile": "profiles",
    "cluster": "cluster",  # what operators use
    "replica": "replica",
    JANITOR: JANITOR,
    "storage": "storage",
    "schedule": "schedule",
    "tier": "tier",
    "new-log": "new_log",
    "clock": "clock",
    "acl": "acl",
    "tls": "tls",
    "support-bundle": "support_bundle",
}
"""The commands of this package in the order in which they are listed, and their modules: one that
is asked for is imported alone, because importing all takes longer than most commands."""
ALL = ""
COMMANDS_GROUP = "stratamq.commands"
_CLOSED = (("stdin", os.O_WRONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"))
"""By descriptor: how each that was closed is opened, so that reading or writing there fails."""

# typer ≥ 0.20 carries its own click, so its exceptions are reached through what typer exports.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]
_ClickException: type[Any] = typer.BadParameter.__mro__[2]


def main(arguments: list[str] | None = None) -> None:
    """Always ends with SystemExit."""
    _fill_closed_streams()
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def _fill_closed_streams() -> None:
    """A standard stream that was closed is one whose use is an error, but for standard error, where
    a line goes nowhere; and no file that is opened later gets its number."""
    for number, (name, flags, mode) in enumerate(_CLOSED):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, flags)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - until the end


def run(arguments: list[str]) -> int:
    """The exit code; nothing that a user can do gives a traceback."""
    try:
        # Not the application's own `main`: it would turn a closed pipe into exit code 1.
        first = arguments[0] if arguments else ""
        command = application(first if first in COMMANDS else ALL)
        # When a shell asks for completions it answers them, and raises SystemExit.
        command._main_shell_completion({}, "stratamq")
        with command.make_context("stratamq", list(arguments)) as context, one_request():
            command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as exit_:
        return exit_.exit_code
    except StrataError as error:
        say(*map(printable, lines_of(error)))
        return code_of(error)
    except BrokenPipeError:
        drop(sys.stdout)
        return EXIT_BROKEN_PIPE
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:
            drop(sys.stdout)
        say(*lines_of(error))
        return code_of(error)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return EXIT_USAGE
        return _fail(error.format_message(), EXIT_USAGE)
    except _ClickException as error:
        return _fail(error.format_message(), EXIT_ERROR)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    return 0


@cache
def application(name: str) -> Any:
    """A command of this package, or all commands; made once in a process."""
    command = get_command(build_app(name))
    _refuse_empty_paths(command)
    return command


def _refuse_empty_paths(command: Any) -> None:
    """`--data "$UNSET"` must not name the current directory, as Python's `Path("")` does."""
    for parameter in command.params:
        if parameter.type.name in ("path", "file", "directory"):
            parameter.type.convert = partial(_path, parameter.type.convert)
    for one in getattr(command, "commands", {}).values():
        _refuse_empty_paths(one)


def _path(convert: Callable[..., Any], value: Any, parameter: Any, context: Any) -> Any:
    if value == "":
        raise typer.BadParameter("the path is empty", context, parameter)
    return convert(value, parameter, context)


def build_app(name: str = ALL) -> typer.Typer:
    app = typer.Typer(
        name="stratamq",
        help="A durable message store, byte-compatible with Apache RocketMQ's.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        _version: Annotated[
            bool,
            typer.Option(
                "--version",
                callback=_print_version,
                is_eager=True,
                help="Show the version and exit.",
            ),
        ] = False,
        profile: Annotated[
            str | None,
            typer.Option(
                metavar="NAME", help="Use the broker of this profile if the command names none."
            ),
        ] = None,
        tls_ca: Annotated[
            Path | None,
            typer.Option(envvar=CA_VARIABLE, help="CA certificate (PEM); enables TLS."),
        ] = None,
        tls_certificate: Annotated[
            Path | None, typer.Option(envvar=CERTIFICATE_VARIABLE, help="Client certificate (PEM).")
        ] = None,
        tls_key: Annotated[
            Path | None,
            typer.Option(envvar=KEY_VARIABLE, help="Private key of the client certificate (PEM)."),
        ] = None,
        token_file: Annotated[
            Path | None,
            typer.Option(envvar=TOKEN_FILE_VARIABLE, help="Read your token from this file."),
        ] = None,
    ) -> None:
        named = {
            CA_VARIABLE: tls_ca,
            CERTIFICATE_VARIABLE: tls_certificate,
            KEY_VARIABLE: tls_key,
            TOKEN_FILE_VARIABLE: token_file,
        }
        choose({variable: str(path) for variable, path in named.items() if path is not None})

    if name != ALL:
        _register(app, COMMANDS[name])
        return app
    for module in COMMANDS.values():
        _register(app, module)
    for entry in sorted(entry_points(group=COMMANDS_GROUP), key=lambda entry: entry.name):
        entry.load()(app)
    return app


def _register(app: typer.Typer, module: str) -> None:
    importlib.import_module(f"stratamq.cli.{module}").register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        from stratamq.formats.kernel import CHOICE

        print(f"stratamq {version('stratamq')} (kernel: {CHOICE})")
        raise typer.Exit


def _fail(message: str, code: int) -> int:
    line = " ".join(message.split())
    say(f"error: {line}")
    return code


if __name__ == "__main__":
    raise_outside_locks()
    main()
