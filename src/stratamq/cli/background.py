"""`stratamq up --daemon` and `stratamq down`: run a broker that outlives its terminal, and stop it.

The broker's own lines go to `stratamq/log/up.log` in its directory. The command that starts it
shows them until the broker is ready or has ended.
"""

import contextlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import typer

from stratamq.cli.dump_output import drop
from stratamq.cli.exit_codes import EXIT_ERROR, code_of, lines_of
from stratamq.cli.options import DEFAULT, LocalDataOption
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError, UnavailableError
from stratamq.formats.store_paths import LOGS_DIRECTORY, UP_LOCK_PATH
from stratamq.service.logging import open_log
from stratamq.service.notify import READY, Manager
from stratamq.service.room_lock import lock_holder
from stratamq.service.supervised import STOP_LIMIT_S

LOOK_S = 0.1
DOWN_LIMIT_S = 2 * STOP_LIMIT_S + 10.0
"""The log stops first, then the others, each with its limit."""


def register(app: typer.Typer) -> None:
    app.command("down")(down)


def up_log(data: Path) -> Path:
    return data / LOGS_DIRECTORY / "up.log"


def run_in_background(data: Path, run: Callable[[], int]) -> int:
    """Run `run` in a process of its own, whose standard output is the log; the exit code for the
    caller: 0 once it has reported that it is ready, or what it ended with."""
    path = up_log(data)
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    manager = Manager()
    with open_log(path) as output:
        begin = path.stat().st_size
        process = os.fork()
        if process == 0:
            _become_daemon(manager, output.fileno(), run)
    with contextlib.closing(manager):
        return _wait_ready(process, manager, path, begin)


def _become_daemon(manager: Manager, output: int, run: Callable[[], int]) -> NoReturn:
    """In the forked process, until its end."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    manager.name_in_environment()
    code = EXIT_ERROR
    try:
        code = run()
    except (StrataError, OSError) as error:
        print(*lines_of(error), sep="\n", file=sys.stderr)
        code = code_of(error)
    except BaseException:  # noqa: BLE001 - the top of a process, which ends below
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _wait_ready(process: int, manager: Manager, path: Path, begin: int) -> int:
    """Show what the broker prints meanwhile."""
    ended = os.pidfd_open(process)
    lines = _new_bytes(path, begin)
    try:
        while True:
            happened, _, _ = select.select([manager, ended], [], [], LOOK_S)
            ready = manager in happened and READY in manager.receive()
            over = not ready and ended in happened
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) if over else 0
            _show(next(lines))
            if code < 0:
                name = signal.Signals(-code).name
                _show(f"error: the broker was ended by {name} before it was ready\n")
                return EXIT_ERROR
            if ready or over:
                return code
    except KeyboardInterrupt:
        os.kill(process, signal.SIGTERM)
        raise
    finally:
        os.close(ended)


def _show(text: str) -> None:
    """Where standard output takes nothing there are the log and the exit code."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        drop(sys.stdout)


def _new_bytes(path: Path, begin: int) -> Iterator[str]:
    """What has been added to the file since the last time."""
    with path.open("rb") as file:
        file.seek(begin)
        while True:
            yield file.read().decode(errors="replace")


def down(
    data: LocalDataOption = DEFAULT,
) -> None:
    """Stop the broker that `stratamq up` runs over a directory, and wait until it has stopped.

    Exit code 1: no broker runs there.
    """
    if not data.is_dir():
        raise NotFoundError(f"there is no store directory {data}: name one with --data")
    process = lock_holder(data / UP_LOCK_PATH)
    if process is None:
        raise NotFoundError(f"no `stratamq up` runs over {data}")
    if process == 0:
        raise InvalidRequestError(f"`stratamq up` over {data} runs in another container: stop that")
    print(f"stopping the broker over {data} (process {process})", flush=True)
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself meanwhile
        _stop(process, data)
    print("everything has stopped")


def _stop(process: int, data: Path) -> None:
    ended = os.pidfd_open(process)
    try:
        signal.pidfd_send_signal(ended, signal.SIGTERM)
        if not select.select([ended], [], [], DOWN_LIMIT_S)[0]:
            raise UnavailableError(
                f"process {process} has not stopped after {DOWN_LIMIT_S:.0f} s: see {up_log(data)} "
                "and the services' logs beside it"
            )
    finally:
        os.close(ended)
