"""The command `stratamq` itself: commands from entry points, and errors in one line."""

import subprocess
import sys

import pytest
import typer

from stratamq.cli import __main__ as command_line
from stratamq.errors import BusyError, NotFoundError

ERRORS = {
    "stored": (NotFoundError("no topic\n  none"), 1, "error: no topic none\n"),
    "busy": (BusyError("disk is full"), 1, "error: disk is full\n"),
    "system": (PermissionError(13, "Permission denied", "/a/file"), 1,
               "error: /a/file: Permission denied\n"),
    "stopped": (KeyboardInterrupt(), 130, ""),
    "left": (typer.Exit(3), 3, ""),
    "usage": (typer.BadParameter("no number"), 2, "error: Invalid value: no number\n"),
}  # fmt: skip


class Entry:
    """An entry point that adds a command for each error."""

    name = "tests"

    def load(self):
        def register(app: typer.Typer) -> None:
            for name, (error, _, _) in ERRORS.items():
                app.command(name)(raising(error))

        return register


def raising(error: BaseException):
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_a_rooms_command_is_one_line_and_an_exit_code(name, capsys, monkeypatch):
    monkeypatch.setattr(command_line, "entry_points", lambda group: [Entry()])
    command_line.application.cache_clear()
    _, code, line = ERRORS[name]
    try:
        assert command_line.run([name]) == code
    finally:
        command_line.application.cache_clear()
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_a_module_has_the_command_that_the_table_names_and_no_other(name):
    assert list(command_line.application(name).commands) == [name]


def test_without_arguments_there_is_help(capsys):
    assert command_line.run([]) == 2
    assert "dump" in "".join(capsys.readouterr())


def test_main_ends_with_the_code(monkeypatch):
    monkeypatch.setattr("sys.argv", ["stratamq", "--version"])
    with pytest.raises(SystemExit) as caught:
        command_line.main()
    assert caught.value.code == 0


def test_ctrl_c_while_the_program_is_imported_ends_it_without_a_traceback():
    program = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'stratamq.cli.up':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from stratamq.cli.entry import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")


def test_ctrl_c_while_a_condition_takes_its_lock_back_comes_when_it_has_it():
    program = (
        "import signal, threading\n"
        "from stratamq.cli.interrupts import raise_outside_locks\n"
        "raise_outside_locks()\n"
        "class Interrupted:\n"
        "    def __init__(self, lock):\n"
        "        self.release, self.__enter__, self.__exit__ = (\n"
        "            lock.release, lock.__enter__, lock.__exit__)\n"
        "        self.lock = lock\n"
        "    def acquire(self, *arguments):\n"
        "        if arguments:\n"
        "            return self.lock.acquire(*arguments)\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        return self.lock.acquire()\n"
        "condition = threading.Condition(Interrupted(threading.Lock()))\n"
        "try:\n"
        "    with condition:\n"
        "        condition.wait(0.001)\n"
        "        threading.Event().wait()\n"
        "except KeyboardInterrupt:\n"
        "    print(condition._lock.lock.locked())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"False\n", b"")
