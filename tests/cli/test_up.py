"""`stratamq up`: the whole broker as processes, from its start to its end."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stratamq.cli.earlier import wait_for_earlier
from stratamq.cli.up import is_fresh, plan
from stratamq.errors import StoreRefusedError
from stratamq.files.clock import SystemClock
from stratamq.rpc.rooms import REGISTER, SERVICES
from tests.cli.processes import DEADLINE_S, SMALL, Up, environment, stratamq
from tests.support.fixtures import unpack
from tests.support.freezing import freeze, thaw
from tests.support.waiting import until

LIGHT = [name for name, service in REGISTER.items() if service.light]


@pytest.fixture
def data(tmp_path) -> Path:
    return tmp_path / "store"


def ended(pid: int) -> bool:
    """Wait until a process that is no child of ours has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], DEADLINE_S)[0])
    finally:
        os.close(descriptor)


def test_what_services_logged_before_they_were_ready_is_shown_before_the_line_that_reports_it(data):
    rarely = (
        "from stratamq.cli import up, __main__; up.LOOK_AT_LOGS_S = 3600;"
        f"__main__.main(['up', '--data', {str(data)!r}, '--port', '0'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", rarely], stdout=subprocess.PIPE, text=True, env=environment()
    ) as up:
        assert up.stdout is not None
        shown = []
        try:
            for line in up.stdout:
                shown.append(line)
                if "ready after" in line:
                    break
        finally:
            up.send_signal(signal.SIGINT)
    assert any("recovery begins at 0" in line for line in shown), "".join(shown)


def test_a_message_goes_in_and_comes_out_and_ctrl_c_stops_everything_in_order(data):
    with Up(data, fresh=True) as up:
        up.wait_ready()
        for room in ("commitlog", "dispatcher", "index"):
            assert str(up.pid(room)) in up.printed()
        with up.client() as client:
            result = client.send("t", b"hello", keys=["k"])
            state = client.log_state()
            assert state.segment_bytes == 128 << 20
            with client.consume("t", follow=True) as reader:
                assert next(reader).body == b"hello"
            until(lambda: client.query_key("t", "k").messages, "the index has it")
            assert result.stored
        assert (data / "abort").exists()
        assert up.stop() == 0
    assert not (data / "abort").exists()
    assert "everything has stopped" in up.printed()
    left = (data / "stratamq" / "run").rglob("*")
    assert [path for path in left if not path.is_dir()] == []
    for room in ("commitlog", "dispatcher", "index"):
        log = (data / "stratamq" / "log" / f"{room}.log").read_text()
        assert f" {room} service started" in log
        assert f" {room} service stopped" in log
    geometry = json.loads((data / "stratamq" / "geometry.json").read_text())
    assert "500000" in json.dumps(geometry)


def test_sizes_are_those_of_the_files_at_the_next_start(data):
    with Up(data, *SMALL) as up:
        up.wait_ready()
        with up.client() as client:
            client.send("t", b"before")
        assert up.stop() == 0
    with Up(data) as up:
        up.wait_ready()
        with up.client() as client:
            assert client.log_state().segment_bytes == 1 << 20
            assert client.send("t", b"after").stored


def test_a_service_that_dies_is_started_again(data):
    with Up(data, *SMALL) as up:
        up.wait_ready()
        with up.client() as client:
            client.send("t", b"before")
            assert len({up.pid(room) for room in LIGHT}) == 1, "they share a process"
            for room in ("commitlog", "dispatcher", "index"):
                former = up.kill(room)
                until(lambda room=room, former=former: up.pid(room) != former, f"{room} runs again")
            assert client.log_state().writable
            assert client.send("t", b"after").stored
            with client.consume("t", follow=True) as reader:
                assert {next(reader).body, next(reader).body} == {b"before", b"after"}
        for room in ("commitlog", "dispatcher", *LIGHT):
            assert f"{room:<10} died (signal SIGKILL)" in up.printed()
        assert up.stop() == 0


def test_a_second_up_reports_that_the_first_one_runs(data):
    with Up(data, *SMALL) as up:
        up.wait_ready()
        second = stratamq("up", data=data)
        assert second.returncode == 3
        assert b"already running" in second.stderr
        assert str(up.process.pid).encode() in second.stderr
        with up.client() as client:
            assert client.send("t", b"still here").stored
        assert up.stop() == 0


def test_a_service_that_runs_already_ends_the_start_with_the_reason(data):
    with Up(data, *SMALL) as up:
        up.wait_ready()
        (data / "stratamq" / "up.lock").rename(data / "stratamq" / "moved.lock")
        pids = {room: up.pid(room) for room in ("commitlog", "dispatcher", "index")}
        with Up(data, *SMALL) as second:
            assert second.process.wait(DEADLINE_S) == 3
            assert "the store is in use" in second.printed()
        assert {room: up.pid(room) for room in pids} == pids, "none was disturbed"
        with up.client() as client:
            assert client.send("t", b"still here").stored


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "commitlog.no_such_setting=1"], "no_such_setting"),
        (["--set", "commitlog.segment_bytes=many"], "segment_bytes"),
        (["--set", "nonsense"], "section.setting=value"),
    ],
)
def test_wrong_settings_end_the_start_with_the_reason(data, arguments, reason):
    with Up(data, *arguments) as up:
        assert up.process.wait(DEADLINE_S) == 2
        assert reason in up.printed()
        assert "Traceback" not in up.printed()


def test_settings_come_from_a_file_and_give_way_to_the_command_line(data, tmp_path):
    config = tmp_path / "broker.toml"
    config.write_text(
        "[commitlog]\nsegment_bytes = 1048576\nbroker_name = 'from-file'\nmetrics_address = ''\n"
        "[index]\nindex_slots = 1000\nindex_items = 4000\n"
    )
    with Up(data, "--config", str(config), "--set", "commitlog.broker_name=from-command") as up:
        up.wait_ready()
        with up.client() as client:
            state = client.log_state()
            assert (state.segment_bytes, state.broker_name) == (1 << 20, "from-command")
        assert up.stop() == 0


def test_a_second_ctrl_c_kills(data):
    with Up(data, *SMALL) as up:
        up.wait_ready()
        pids = [up.pid(room) for room in ("commitlog", "dispatcher", "index")]
        freeze(pids[0])  # it cannot stop in order any more
        up.interrupt()
        until(lambda: "commitlog  stopping" in up.printed(), "the log is stopping")
        up.interrupt()
        assert up.process.wait(DEADLINE_S) == 1
        assert all(ended(pid) for pid in pids)


def test_services_stop_in_order_when_up_itself_is_killed(data):
    with Up(data, *SMALL) as up:
        up.wait_ready()
        pids = [up.pid(room) for room in ("commitlog", "dispatcher", "index")]
        with up.client() as client:
            client.send("t", b"kept")
        up.process.kill()
        up.process.wait(DEADLINE_S)
        assert all(ended(pid) for pid in pids)
    log = (data / "stratamq" / "log" / "commitlog.log").read_text()
    assert "service stopped" in log
    assert not (data / "abort").exists(), "the others had everything before they ended"
    with Up(data) as up:
        up.wait_ready()
        assert up.stop() == 0


def test_an_up_that_follows_a_killed_one_at_once_waits_for_its_services(data):
    with Up(data, *SMALL) as up:
        up.wait_ready()
        pids = [up.pid(room) for room in SERVICES if not REGISTER[room].needed_settings]
        with up.client() as client:
            assert client.send("t", b"kept").stored
        freeze(pids[-1])  # it ends later than a start takes
        up.process.kill()
        up.process.wait(DEADLINE_S)
    with Up(data, *SMALL) as up:
        while f"janitor (process {pids[-1]})" not in up.printed():
            assert up.process.poll() is None, up.printed()
        thaw(pids[-1])
        up.wait_ready()
        assert all(ended(pid) for pid in pids), "it waits for every one of them"
        with up.client() as client, client.consume("t", follow=True) as reader:
            assert next(reader).body == b"kept"
        assert up.stop() == 0


def test_services_that_do_not_end_are_named_after_a_bounded_wait(data):
    printed: list[str] = []
    with Up(data, *SMALL) as up:
        up.wait_ready()
        with pytest.raises(StoreRefusedError) as refused:
            wait_for_earlier(
                data, ["commitlog", "index"], printed.append, SystemClock(), limit_s=0.1
            )
        for room in ("commitlog", "index"):
            assert f"{room} (process {up.pid(room)})" in str(refused.value)
            assert f"{room} (process {up.pid(room)})" in printed[0]
        assert len(printed) == 1
        assert up.stop() == 0
    wait_for_earlier(data, ["commitlog", "index"], printed.append, SystemClock(), limit_s=0.1)
    assert len(printed) == 1, "no process holds the store any more"


def test_a_directory_that_rocketmq_wrote_is_served_and_written_on(data, rocketmq_store):
    shutil.copytree(rocketmq_store, data, symlinks=True)
    geometry = ("--set", "index.index_slots=16", "--set", "index.index_items=64")
    with Up(data, *geometry) as up:
        up.wait_ready()
        with up.client() as client:
            assert client.log_state().segment_bytes == 65_536
            topic = client.queues()[0].topic
            before = len(list(client.consume(topic)))
            assert before > 0
            assert client.send(topic, b"from StrataMQ", queue_id=0).stored
            with client.consume(topic, follow=True) as reader:
                assert len([next(reader) for _ in range(before + 1)]) == before + 1
        assert up.stop() == 0


EXPIRES_AT_ONCE = (
    "--set", "janitor.retention_ms=0", "--set", "janitor.interval_ms=20",
    "--set", "janitor.clock_tolerance_ms=1000000000000000",
    "--set", f"janitor.delete_when={','.join(str(hour) for hour in range(24))}",
    "--set", "commitlog.release_timeout_ms=0",
    "--set", "index.index_slots=16", "--set", "index.index_items=64",
)  # fmt: skip


def test_nothing_is_deleted_from_an_adopted_store_until_an_operator_enables_it(
    data, rocketmq_store
):
    shutil.copytree(rocketmq_store, data, symlinks=True)
    before = sorted(path.name for path in (data / "commitlog").iterdir())
    assert len(before) > 2
    with Up(data, *EXPIRES_AT_ONCE) as up:
        up.wait_ready()
        assert "nothing is deleted" in up.printed() and "stratamq janitor enable" in up.printed()
        assert f"it would delete {len(before) - 1} segments" in up.printed()
        done = stratamq("janitor", "run", data=data)
        assert done.returncode == 0 and b"retention is disabled" in done.stdout
        with up.client() as client:
            looked = client.admin.janitor_state().last
            while client.admin.janitor_state().last == looked:
                continue
            assert client.log_state().minimum_offset == 0
        assert up.stop() == 0
    kept = {path.name for path in (data / "commitlog").iterdir()}
    assert kept >= set(before)
    with Up(data, *EXPIRES_AT_ONCE) as up:
        up.wait_ready()
        enabled = stratamq("janitor", "enable", data=data)
        assert enabled.returncode == 0 and b"now" in enabled.stdout
        with up.client() as client:
            while client.log_state().segment_count > 1:
                continue
        assert up.stop() == 0
    with Up(data, *EXPIRES_AT_ONCE) as up:
        up.wait_ready()
        assert "nothing is deleted" not in up.printed(), "the word outlives the broker"
        disabled = stratamq("janitor", "disable", data=data)
        assert disabled.returncode == 0 and b"an operator has disabled" in disabled.stdout
        assert b"retention disabled" in stratamq("status", data=data).stdout
        assert up.stop() == 0


def test_the_rule_by_which_messages_are_deleted_is_shown_at_the_start(data):
    with Up(data, *SMALL, "--set", "janitor.retention_ms=3600000") as up:
        up.wait_ready()
        assert "retention: Segments expire after 1 h" in up.printed()
        assert "0 segments (0 bytes) now" in up.printed()
        assert up.stop() == 0


@pytest.fixture
def rocketmq_store(tmp_path) -> Path:
    return unpack("4.9.8-small-clean", tmp_path / "rocketmq")


# --- what it starts ---


def test_an_empty_directory_gets_laptop_sizes_and_an_existing_one_none(tmp_path):
    arguments = list(plan(tmp_path, None, [])[0].command)
    assert "commitlog.segment_bytes=134217728" in arguments
    assert "index.index_slots=500000" in arguments
    (tmp_path / "commitlog").mkdir()
    assert is_fresh(tmp_path)
    (tmp_path / "commitlog" / "00000000000000000000").touch()
    assert not is_fresh(tmp_path)
    assert not any("segment_bytes" in text for text in plan(tmp_path, None, [])[0].command)


def test_configured_sizes_are_left_alone(tmp_path, monkeypatch):
    config = tmp_path / "c.toml"
    config.write_text("[commitlog]\nsegment_bytes = 5\n")
    monkeypatch.setenv("STRATAMQ_INDEX_INDEX_SLOTS", "7")
    data = tmp_path / "data"
    command = plan(data, config, ["index.index_items=9"])[0].command
    sizes = [text for text in command if "segment_bytes" in text or "index_" in text]
    assert sizes == ["index.index_items=9"]
