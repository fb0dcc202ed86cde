"""Who may read what a broker makes, and what a refused `up` leaves."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratamq.rpc import discovery
from tests.cli.processes import SMALL, Up, stratamq
from tests.support.waiting import until, until_dispatched, until_indexed


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A user's umask that hides nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes_below(root: Path) -> Iterator[tuple[Path, int]]:
    for path in [root, *root.rglob("*")]:
        yield path, stat.S_IMODE(path.lstat().st_mode)


def used_broker(data: Path, tier: Path, *settings: str, fresh: bool = False) -> None:
    """A broker with every part of a store and a tier, stopped."""
    given = [*SMALL, "--set", f"tier.target={tier}", "--set", "tier.batches=false"]
    given += ["--set", "tier.scan_interval_ms=50"]
    with Up(data, *given, *settings, fresh=fresh) as up:
        up.wait_ready()
        with up.client() as client:
            for number in range(50):
                client.send("t", b"x" * 50_000, keys=[f"k{number}"])
            until_dispatched(client)
            until_indexed(client)
            assert len(list(client.consume("t", group="g"))) == 50
        until(lambda: any(path.is_file() for path in tier.rglob("*")), "something in the tier")


@pytest.mark.parametrize(
    ("settings", "directory_mode", "file_mode"),
    [((), 0o750, 0o640), (("--set", "files.rocketmq_modes=true"), 0o755, 0o644)],
    ids=["ours", "rocketmq"],
)
def test_all_that_a_broker_makes_has_one_mode(tmp_path, settings, directory_mode, file_mode):
    data, tier = tmp_path / "data", tmp_path / "tier"
    used_broker(data, tier, *settings)
    made = {part.name for part in data.iterdir()}
    assert made >= {"commitlog", "consumequeue", "index", "config", "stratamq"}
    assert made >= {"lock", "checkpoint"}
    private = discovery.socket_directory(data)
    wrong = {
        str(path): oct(mode)
        for root in (data, tier)
        for path, mode in modes_below(root)
        if path != private and mode != (directory_mode if path.is_dir() else file_mode)
    }
    assert wrong == {}


def test_directories_that_are_there_keep_their_modes(tmp_path):
    data = tmp_path / "data"
    (data / "commitlog").mkdir(parents=True)
    (data / "commitlog").chmod(0o711)
    data.chmod(0o775)
    used_broker(data, tmp_path / "tier")
    modes = dict(modes_below(data))
    assert (modes[data], modes[data / "commitlog"]) == (0o775, 0o711)
    assert modes[data / "index"] == 0o750


def test_a_stricter_umask_stays(tmp_path):
    os.umask(0o077)
    data = tmp_path / "data"
    used_broker(data, tmp_path / "tier", fresh=True)
    assert not [path for path, mode in modes_below(data) if mode & 0o077]


@pytest.mark.parametrize(
    "settings",
    [
        ["tls.certificate=/nonexistent", "tls.key=/nonexistent", "tls.ca=/nonexistent"],
        ["access.file=/nonexistent"],
        ["tier.target=ftp://x/y"],
        ["ha.members=a=127.0.0.1:1,b=127.0.0.1:2"],
    ],
    ids=["tls", "access", "tier", "members"],
)
def test_a_refused_up_leaves_no_new_directory_and_all_of_one_that_was_there(tmp_path, settings):
    given = [argument for setting in settings for argument in ("--set", setting)]
    data = tmp_path / "data"
    done = stratamq("up", "--port", "0", *given, data=data)
    assert (done.returncode, data.exists()) == (2, False), done
    data.mkdir()
    (data / "notes.txt").write_text("mine")
    done = stratamq("up", "--port", "0", *given, data=data)
    assert done.returncode == 2
    assert (data / "notes.txt").read_text() == "mine"


def test_settings_that_all_services_share_are_checked_before_anything_starts(tmp_path):
    done = stratamq("up", "--port", "0", "--set", "access.file=/nonexistent", data=tmp_path / "d")
    assert b"nothing was started" in done.stderr
    assert b"commitlog" not in done.stdout
