"""`stratamq acl` and `stratamq tls`, as a person types them, and a broker that goes by them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from stratamq.rpc import discovery
from tests.cli.processes import lines, stratamq
from tests.security.conftest import Pki
from tests.support.brokers import Broker
from tests.support.waiting import until

ROOMS = ("commitlog", "dispatcher", "index", "janitor")


def typed(*arguments: object, code: int = 0, stdin: bytes = b"", **variables: str) -> str:
    done = stratamq(*map(str, arguments), stdin=stdin, **variables)
    assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
    return (done.stdout + done.stderr).decode()


@pytest.fixture
def acl(tmp_path):
    file = tmp_path / "access.json"
    typed("acl", "init", "-f", file)

    def run(*arguments: object, code: int = 0) -> str:
        return typed("acl", *arguments, "-f", file, code=code)

    run.file = file
    return run


def test_a_permission_is_given_tested_listed_and_taken(acl):
    assert "no: no rule lets alice consume topic:orders" in acl(
        "test", "alice", "consume", "topic:orders", code=1
    )
    acl("grant", "alice", "consume", "topic:orders*")
    assert "yes: alice may consume topic:orders*" in acl(
        "test", "alice", "consume", "topic:orders-eu"
    )
    assert "there is: alice may consume topic:orders*" in acl(
        "test", "alice", "consume", "topic:payments", code=1
    )
    assert "already allowed" in acl("grant", "alice", "consume", "topic:orders*")
    shown = [json.loads(line) for line in acl("list", "-o", "json").splitlines()]
    assert {"kind": "rule", "who": "alice", "may": "consume", "what": "topic:orders*"} in shown
    acl("revoke", "alice", "consume", "topic:orders*")
    acl("test", "alice", "consume", "topic:orders-eu", code=1)
    assert "no such rule" in acl("revoke", "alice", "consume", "topic:orders*", code=1)


def test_a_team_has_what_its_users_have_together(acl):
    acl("team", "shop", "alice", "bob")
    acl("grant", "@shop", "produce", "topic:orders")
    assert "@shop may produce topic:orders" in acl("test", "bob", "produce", "topic:orders")
    acl("team", "shop", "alice")
    acl("test", "bob", "produce", "topic:orders", code=1)
    acl("team", "shop")
    acl("test", "alice", "produce", "topic:orders", code=1)


def test_a_token_is_shown_once_and_taken_back(acl):
    token = acl("token", "alice").split()[0]
    assert token not in acl.file.read_text()
    assert acl.file.stat().st_mode & 0o777 == 0o600
    number = json.loads(acl.file.read_text())["users"]["alice"]["tokens"][0]["id"]
    assert number in acl("list")
    assert "alice now has 0 tokens" in acl("token", "alice", "--revoke", number)
    assert "has no token" in acl("token", "alice", "--revoke", number, code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("grant", "alice", "eat", "topic:a"),
        ("grant", "alice", "consume", "a"),
        ("grant", "a b", "consume", "topic:a"),
        ("test", "@team", "consume", "topic:a"),
        ("token", "a b"),
        ("team", "shop", "a b"),
        ("grant", "alice", "consume", "topic:\x1b[31m"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(acl, arguments):
    before = acl.file.read_bytes()
    assert acl(*arguments, code=1).startswith("error: ")
    assert acl.file.read_bytes() == before


def test_a_missing_file_is_named_with_what_to_do(tmp_path):
    output = typed("acl", "list", "-f", tmp_path / "none.json", code=2)
    assert "stratamq acl init" in output
    assert "already exists" in typed("acl", "init", "-f", _touched(tmp_path / "some.json"), code=1)


def _touched(path: Path) -> Path:
    path.touch()
    return path


def test_changes_of_several_at_once_are_all_kept(acl):
    def grant(number: int) -> None:
        command = [sys.executable, "-m", "stratamq.cli", "acl", "grant"]
        words = [f"user{number}", "consume", "topic:t", "-f", str(acl.file)]
        subprocess.run([*command, *words], check=True, capture_output=True)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(grant, range(12)))
    assert len(json.loads(acl.file.read_text())["rules"]) == 12


def test_the_services_user_may_still_read_the_file_that_root_has_changed(tmp_path):
    """With the owner or the mode of who typed, a revocation would never be used."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    file = tmp_path / "access.json"
    typed("acl", "init", "-f", file)
    os.chown(file, 12_345, 12_346)
    file.chmod(0o640)
    command = [sys.executable, "-m", "stratamq.cli", "acl", "grant", "a", "consume", "topic:t"]
    subprocess.run(
        ["sh", "-c", 'umask 077; exec "$@"', "sh", *command, "-f", str(file)],
        check=True,
        capture_output=True,
    )
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12_345, 12_346, 0o640)


def test_a_change_through_a_link_changes_what_the_link_names(acl, tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to(acl.file)
    typed("acl", "grant", "alice", "consume", "topic:t", "-f", link)
    assert link.is_symlink() and "alice" in acl.file.read_text()
    dangling = tmp_path / "dangling.json"
    dangling.symlink_to(tmp_path / "nothing")
    assert "already exists" in typed("acl", "init", "-f", dangling, code=1)


def test_what_is_in_the_way_of_the_new_file_goes_and_is_not_written_through(acl, tmp_path):
    """A link of another user, in a directory that others may write to, or what a killed change has
    left."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    acl.file.with_name(f".{acl.file.name}.tmp").symlink_to(victim)
    acl("grant", "alice", "consume", "topic:t")
    assert "alice" in acl.file.read_text() and not acl.file.is_symlink()
    assert victim.read_text() == "untouched"


# --- certificates ---


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ca", "are the authority's"),
        ("../evil", "no / and no . in front"),
        ("a/b", "no / and no . in front"),
        (".hidden", "no / and no . in front"),
        ("x" * 65, "names of 64 bytes"),
        ("é" * 33, "names of 64 bytes"),
        ("stratamq-broker", "have all permissions"),
    ],
)
def test_names_that_no_certificate_of_a_user_may_have_are_refused(tmp_path, name, reason):
    pki = tmp_path / "pki"
    typed("tls", "init", pki)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert reason in typed("tls", "issue", pki, name, "--replace", code=1)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("host", ["ü ü", "", "\n", "a b"])
def test_a_wrong_host_is_refused_before_anything_is_made(tmp_path, host):
    assert "a name or an IP" in typed("tls", "init", tmp_path / "pki", "--host", host, code=1)
    typed("tls", "init", tmp_path / "pki")


def test_nothing_that_is_there_is_replaced(tmp_path):
    typed("tls", "init", tmp_path / "pki", "--host", "broker.example")
    before = {path.name: path.read_bytes() for path in (tmp_path / "pki").iterdir()}
    assert "is not replaced" in typed("tls", "init", tmp_path / "pki", code=1)
    typed("tls", "issue", tmp_path / "pki", "alice")
    assert "is not replaced" in typed("tls", "issue", tmp_path / "pki", "alice", code=1)
    typed("tls", "issue", tmp_path / "pki", "alice", "--replace")
    assert {name: (tmp_path / "pki" / name).read_bytes() for name in before} == before
    assert "has no authority" in typed("tls", "issue", tmp_path, "alice", code=2)
    assert "a name or an IP" in typed(
        "tls", "issue", tmp_path / "pki", "x", "--host", "ü ü", code=1
    )


# --- a broker ---


class Guarded:
    """A broker with TLS and permissions, and what somebody types against it."""

    def __init__(self, broker: Broker, pki: Pki, file: Path, directory: Path) -> None:
        self.broker = broker
        self.file = file
        self._pki = pki
        self._directory = directory
        found = discovery.read(broker.root, "commitlog")
        self.address = found.address

    def token(self, user: str) -> Path:
        path = self._directory / f"{user}.token"
        path.write_text(typed("acl", "token", user, "-f", self.file).split()[0])
        return path

    def typed(self, token: Path | None, *arguments: object, code: int = 0, stdin=b"") -> str:
        given = {"STRATAMQ_TLS_CA": f"{self._pki.directory}/ca.pem"}
        if token is not None:
            given["STRATAMQ_TOKEN_FILE"] = str(token)
        return typed(*arguments, "--address", self.address, code=code, stdin=stdin, **given)


@pytest.fixture
def guarded(tmp_path, pki) -> Iterator[Guarded]:
    file = tmp_path / "access.json"
    typed("acl", "init", "-f", file)
    settings = pki.settings(f"access.file={file}")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        yield Guarded(broker, pki, file, tmp_path)


def test_users_do_what_they_may_and_nothing_else(guarded):
    typed("topics", "create", "orders", "--data", guarded.broker.root)
    typed("acl", "grant", "alice", "produce", "topic:orders", "-f", guarded.file)
    typed("acl", "grant", "bob", "consume", "topic:orders", "-f", guarded.file)
    typed("acl", "grant", "bob", "consume", "group:billing", "-f", guarded.file)
    # The last change: who knows bob's token knows everything before it.
    alice, bob = guarded.token("alice"), guarded.token("bob")

    def produce(code: int) -> str:
        return guarded.typed(alice, "produce", "orders", stdin=lines("one"), code=code)

    def is_known_everywhere() -> bool:
        """Each service reads the file again by itself."""
        of_each_service = (("topics", "list"), ("groups", "list"), ("janitor", "run"))
        shown = [_either(partial(guarded.typed, bob, *words)) for words in of_each_service]
        return not any("unknown token" in text for text in shown)

    until(is_known_everywhere, "the file was read again", deadline_s=60)
    produce(0)
    assert "one" in guarded.typed(bob, "consume", "orders", "--group", "billing")
    assert "bob may not produce any topic" in guarded.typed(
        bob, "produce", "orders", stdin=lines("two"), code=1
    )
    assert "alice may not consume topic:orders" in guarded.typed(alice, "consume", "orders", code=1)
    assert "may not observe group:other" in guarded.typed(
        bob, "consume", "orders", "--group", "other", code=1
    )
    assert "asks who calls" in guarded.typed(None, "topics", "list", code=1)
    for refused in (
        ("topics", "delete", "orders", "--yes"),
        ("janitor", "run"),
        ("groups", "list"),
    ):
        assert "bob may not" in guarded.typed(bob, *refused, code=1), refused
    log = guarded.broker.output("commitlog") + guarded.broker.output("dispatcher")
    assert "refused who=bob" in log
    assert alice.read_text() not in log and bob.read_text() not in log


def _either(command) -> str:
    """What a command prints, whether it may or not."""
    try:
        return command(code=0)
    except AssertionError as refused:
        return str(refused)


def test_the_machine_s_own_commands_need_no_permission(guarded):
    assert "commitlog" in typed("status", "--data", guarded.broker.root)
    typed("topics", "create", "orders", "--data", guarded.broker.root)


def test_metrics_are_for_observers(guarded, pki):
    import ssl
    import urllib.error
    import urllib.request

    endpoint = discovery.read(guarded.broker.root, "commitlog")
    trusting = ssl.create_default_context(cafile=str(pki.directory / "ca.pem"))
    token = guarded.token("prometheus")
    typed("acl", "grant", "prometheus", "observe", "broker", "-f", guarded.file)

    def scraped(given: str | None) -> int:
        request = urllib.request.Request(f"https://{endpoint.metrics}/metrics")
        if given is not None:
            request.add_header("Authorization", f"Bearer {given}")
        try:
            with urllib.request.urlopen(request, context=trusting) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    until(lambda: scraped(token.read_text()) == 200, "the file was read again")
    assert scraped(None) == 403
    assert scraped("unknown") == 403
