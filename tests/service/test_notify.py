"""What a process reports to the manager that started it."""

import contextlib
import socket
from pathlib import Path

from stratamq.service.notify import READY, STOPPING, VARIABLE, Manager, notify


def test_a_process_without_a_manager_reports_nothing():
    notify(READY, {})


def test_a_state_reaches_the_socket_that_the_environment_names(tmp_path):
    path = tmp_path / "notify"
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(path))
        notify(READY, {VARIABLE: str(path)})
        assert manager.recv(100) == b"READY=1"


def test_a_manager_that_has_ended_is_left_alone(tmp_path):
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(str(tmp_path / "ended"))
    notify(STOPPING, {VARIABLE: str(tmp_path / "ended")})
    Path(tmp_path / "ended").unlink()
    notify(STOPPING, {VARIABLE: str(tmp_path / "ended")})


def test_our_own_manager_receives_what_is_reported_under_its_name(monkeypatch):
    with contextlib.closing(Manager()) as manager:
        monkeypatch.setenv(VARIABLE, "")
        manager.name_in_environment()
        notify(f"{READY}\nSTATUS=all of it")
        assert manager.receive() == [READY, "STATUS=all of it"]
