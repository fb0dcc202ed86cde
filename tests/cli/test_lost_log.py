"""A store whose log is not there: every service and `up` refuse it, until `new-log`."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stratamq.service.installed import installed_rooms
from tests.cli.processes import DEADLINE_S, Up, environment, stratamq
from tests.support.brokers import geometry_settings
from tests.support.fixtures import geometry, unpack

EXIT_REFUSED = 3


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else b""
        for path in root.rglob("*")
    }


@pytest.fixture
def without_log(tmp_path) -> Path:
    store = unpack("4.9.8-small-clean", tmp_path)
    shutil.move(store / "commitlog", tmp_path / "elsewhere")
    return store


@pytest.mark.parametrize("room", installed_rooms())
def test_each_service_alone_refuses_and_changes_nothing(room, without_log):
    before = contents(without_log)
    needed = {
        "tier": ["--set", f"tier.target={without_log.parent / 'tier'}"],
        "gateway": ["--set", "gateway.remoting_address=127.0.0.1:0"],
        "console": ["--set", "console.http_address=127.0.0.1:0"],
    }
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            f"stratamq_{room}",
            "--data",
            str(without_log),
            *needed.get(room, ()),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=environment(),
        check=False,
    )
    assert ended.returncode == EXIT_REFUSED, ended.stderr
    assert "has no segment" in ended.stdout + ended.stderr
    assert contents(without_log) == before


def test_up_refuses_until_the_log_is_back_or_given_up(without_log, tmp_path):
    before = contents(without_log)
    refused = stratamq("up", "--port", "0", data=without_log)
    assert refused.returncode == EXIT_REFUSED
    assert b"new-log" in refused.stderr and contents(without_log) == before

    kept = tmp_path / "given-up"
    shutil.copytree(without_log, kept)
    shutil.move(tmp_path / "elsewhere", without_log / "commitlog")
    assert stratamq("new-log", data=without_log).returncode == EXIT_REFUSED
    sizes = [f"--set={setting}" for setting in geometry_settings(geometry(kept))]
    with Up(without_log, *sizes).wait_ready() as up, up.client() as client:
        assert client.log_state().appended_offset > 0
    assert stratamq("new-log", data=kept).returncode == 0
    with Up(kept).wait_ready() as up, up.client() as client:
        assert client.log_state().appended_offset == 0
        # A broker runs on it.
        assert stratamq("new-log", data=kept).returncode == EXIT_REFUSED
    aside = [path for path in kept.glob("stratamq/aside/*/*") if path.name == "consumequeue"]
    assert len(aside) == 1 and any(aside[0].rglob("0*"))


def test_a_broker_is_not_made_inside_rocketmqs_log(tmp_path):
    store = unpack("4.9.8-small-clean", tmp_path)
    before = contents(store)
    refused = stratamq("up", "--port", "0", data=store / "commitlog")
    assert refused.returncode == EXIT_REFUSED and b"the directory above" in refused.stderr
    assert contents(store) == before
