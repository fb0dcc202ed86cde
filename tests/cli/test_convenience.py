"""What saves typing: profiles, completion by the shell, listings that repeat."""

import json
import os
import pty
import signal
import subprocess

import pytest

from tests.cli.processes import COMMAND, DEADLINE_S, SMALL, Up, environment, stratamq
from tests.support.waiting import until_dispatched


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    data = tmp_path_factory.mktemp("broker") / "store"
    with Up(data, *SMALL) as up:
        up.wait_ready()
        with up.client() as client:
            for topic in ("orders", "orders-old", "refunds"):
                client.send(topic, b"1", queue_id=0)
            until_dispatched(client)
            client.commit_offsets("billing", {("orders", 0): 1})
        yield data


@pytest.fixture
def home(tmp_path):
    """Where this test's profiles are."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def lines(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().splitlines()


# --- profiles ---


def topics(*before: str, **variables: str) -> list[str]:
    done = stratamq(*before, "topics", "list", "--output", "json", **variables)
    return [json.loads(line)["topic"] for line in lines(done)]


def test_a_command_without_a_broker_takes_the_current_profile(broker, home):
    assert (
        "the current one"
        in lines(stratamq("profile", "add", "here", "--data", str(broker), **home))[0]
    )
    assert "orders" in topics(**home)
    stratamq("profile", "use", "none", **home)
    nowhere = stratamq("topics", "list", **home)
    assert (nowhere.returncode, b"no store directory" in nowhere.stderr) == (1, True)


def test_a_profile_is_selected_by_option_or_variable_and_loses_to_an_explicit_place(
    broker, home, tmp_path
):
    (tmp_path / "empty").mkdir()
    stratamq("profile", "add", "empty", "--data", str(tmp_path / "empty"), **home)
    stratamq("profile", "add", "here", "--data", str(broker), **home)
    assert "orders" in topics("--profile", "here", **home)
    assert "orders" in topics(**home, STRATAMQ_PROFILE="here")
    assert "orders" in topics(**home, STRATAMQ_DATA=str(broker))
    done = stratamq("topics", "list", "--output", "json", data=broker, **home)
    assert b"refunds" in done.stdout
    away = stratamq("topics", "list", **home)
    assert b"no commitlog service has announced itself" in away.stderr


def test_profiles_are_listed_replaced_and_removed(home, tmp_path):
    none = stratamq("profile", "list", **home)
    assert (none.returncode, b"stratamq profile add" in none.stderr) == (0, True)
    stratamq("profile", "add", "a", "--address", "a:10911", **home)
    stratamq("profile", "add", "b", "--address", "b:10911", **home)
    stratamq("profile", "add", "b", "--address", "b:10931", "--use", **home)
    listed = [json.loads(line) for line in lines(stratamq("profile", "list", "-o", "json", **home))]
    assert [(one["profile"], one["current"], one["address"]) for one in listed] == [
        ("a", False, "a:10911"),
        ("b", True, "b:10931"),
    ]
    assert stratamq("profile", "remove", "b", **home).returncode == 0
    assert b'"current": null' in (tmp_path / "config/stratamq/profiles.json").read_bytes()


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (("add", "x"), "one of them"),
        (("add", "x", "--address", "a:1", "--data", "."), "one of them"),
        (("add", "x", "--address", "nonsense"), "host:port"),
        (("add", "x", "--data", "not-there"), "no directory"),
        (("use", "x"), "no profile x (there is none)"),
        (("remove", "x"), "no profile x"),
    ],
)
def test_a_profile_that_can_be_none_is_refused(home, arguments, reason):
    refused = stratamq("profile", *arguments, **home)
    assert refused.returncode == 1
    assert reason in refused.stderr.decode()


def test_a_file_that_holds_no_profiles_is_named(home, tmp_path):
    path = tmp_path / "config" / "stratamq" / "profiles.json"
    path.parent.mkdir(parents=True)
    path.write_text("[]")
    refused = stratamq("topics", "list", **home)
    assert refused.returncode == 2
    assert str(path) in refused.stderr.decode()


# --- completion ---


def completed(line: str) -> list[str]:
    """What bash is offered at the end of a line."""
    done = stratamq(
        _STRATAMQ_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(line.split(" ")) - 1),
    )
    assert done.stderr == b""
    return done.stdout.decode().split()


def test_a_shell_completes_commands_and_options():
    assert completed("stratamq prod") == ["produce"]
    assert "--dry-run" in completed("stratamq groups reset --d")


def test_a_shell_completes_topics_and_groups_of_the_broker_on_the_line(broker):
    assert completed(f"stratamq topics describe --data {broker} ord") == ["orders", "orders-old"]
    assert completed(f"stratamq queues --data {broker} re") == ["refunds"]
    assert completed(f"stratamq groups describe --data {broker} b") == ["billing"]


def test_a_broker_that_is_away_completes_nothing(tmp_path):
    assert completed(f"stratamq topics describe --data {tmp_path} o") == []
    assert completed("stratamq topics describe --address 127.0.0.1:1 o") == []


# --- again and again ---


@pytest.mark.parametrize("command", [("status",), ("groups",), ("groups", "list")])
def test_a_listing_is_shown_again_until_ctrl_c(broker, command):
    watching = subprocess.Popen(
        [*COMMAND, *command, "--watch", "0.1", "--data", str(broker), "--output", "json"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert watching.stdout is not None
    with watching:
        seen: list[str] = []
        for line in watching.stdout:
            seen.append(line.decode().strip())
            if seen.count("") == 2:
                break
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=DEADLINE_S)
    assert (watching.returncode, errors) == (0, b"")
    first, second, *_ = "\n".join(seen).split("\n\n")
    assert json.loads(first.splitlines()[0]).keys() == json.loads(second.splitlines()[0]).keys()


def test_a_terminal_is_cleared_each_time(broker):
    ours, theirs = pty.openpty()
    watching = subprocess.Popen(
        [*COMMAND, "groups", "--watch", "0.1", "--data", str(broker)],
        env=environment(),
        stdout=theirs,
    )
    os.close(theirs)
    with watching, os.fdopen(ours, "rb", buffering=0) as terminal:
        seen = b""
        while seen.count(b"\x1b[H\x1b[2J") < 2:
            seen += terminal.read(1000)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(DEADLINE_S) == 0
    assert seen.count(b"billing") >= 2


def test_a_broker_that_is_away_is_asked_again(tmp_path):
    watching = subprocess.Popen(
        [*COMMAND, "groups", "--watch", "0.1", "--data", str(tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
    )
    assert watching.stdout is not None
    with watching:
        seen = 0
        while seen < 2:
            seen += b"error: no dispatcher" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=DEADLINE_S)
    assert watching.returncode == 1


@pytest.mark.parametrize("every_s", ["inf", "nan", "1e10", "1e300", "86401", "0", "-1", ""])
def test_a_pause_that_cannot_be_waited_for_is_a_wrong_option(tmp_path, every_s):
    done = stratamq("groups", "--watch", every_s, data=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"'--watch' / '-w'" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("cluster", "switchover", "--to", "b", "--timeout"),
        ("cluster", "handover", "--timeout"),
        ("cluster", "drain-shard", "a", "--grace"),
    ],
)
def test_what_is_no_number_of_seconds_is_a_wrong_option(tmp_path, command):
    done = stratamq(*command, "nan", data=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert command[-1].encode() in done.stderr
