"""The permissions file: what a rule allows, what is no file, what a service makes of changes."""

import errno
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stratamq.errors import ConfigurationError, InvalidRequestError
from stratamq.rpc.permission_file import Permissions, Token, digest_of, dump, grant_of, parse
from stratamq.rpc.permissions import Permission, ResourceKind, Verb
from stratamq.service.permission_source import LOOK_S, PermissionSource, PermissionTable
from tests.support.waiting import until


def allowed(
    what: str, verb: Verb, kind: ResourceKind, name: str = "", may: str = "consume"
) -> bool:
    permissions = Permissions(rules=[grant_of("alice", may, what)])
    return permissions.allowing("alice", Permission(kind, verb, name)) is not None


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders", "Orders", False),
        ("orders*", "orders-eu", True),
        ("*", "anything", True),
        ("*-dlq", "orders-dlq", True),
        ("o*s", "orders", True),
        ("orders?", "orders1", False),
        ("orders?", "orders?", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("orders*", "orders\nsecret", True),
    ],
)
def test_a_star_alone_stands_for_other_characters(pattern, name, fits):
    assert allowed(f"topic:{pattern}", Verb.CONSUME, ResourceKind.TOPIC, name) is fits


def test_a_rule_is_of_one_verb_and_one_kind():
    assert not allowed("topic:a", Verb.PRODUCE, ResourceKind.TOPIC, "a")
    assert not allowed("topic:a", Verb.CONSUME, ResourceKind.GROUP, "a")
    assert not allowed("topic:*", Verb.OBSERVE, ResourceKind.BROKER)
    assert allowed("broker", Verb.OBSERVE, ResourceKind.BROKER, may="operate")
    assert not allowed("broker", Verb.OPERATE, ResourceKind.BROKER, may="observe")
    assert not allowed("broker", Verb.CONSUME, ResourceKind.TOPIC, "a", may="operate")
    assert allowed("broker", Verb.CONSUME, ResourceKind.TOPIC, "a", may="member")


@pytest.mark.parametrize("verb", ["produce", "consume", "manage"])
def test_every_permission_on_a_topic_shows_that_it_exists(verb):
    assert allowed("topic:a", Verb.ANY, ResourceKind.TOPIC, "a", may=verb)
    assert not allowed("topic:a", Verb.ANY, ResourceKind.TOPIC, "b", may=verb)


def test_rules_are_of_users_of_their_teams_and_of_everyone():
    permissions = Permissions(
        teams={"shop": ["alice"]},
        rules=[grant_of("@shop", "consume", "topic:a"), grant_of("*", "consume", "topic:b")],
    )
    a, b = (Permission(ResourceKind.TOPIC, Verb.CONSUME, name) for name in "ab")
    assert str(permissions.allowing("alice", a)) == "@shop may consume topic:a"
    assert permissions.allowing("bob", a) is None
    assert permissions.allowing("shop", a) is None
    assert permissions.allowing("bob", b) is not None


def test_a_token_is_kept_as_its_digest_alone():
    permissions = Permissions()
    token = permissions.add_token("alice", "2026-11-23")
    content = dump(permissions)
    assert token.encode() not in content and digest_of(token).encode() in content
    table = PermissionTable(parse(content, "it"), 0)
    assert table.user_of(digest_of(token)) == "alice"
    assert table.user_of(digest_of(digest_of(token))) == table.user_of("") == ""


names = st.text("abcdefghijklmnop-._[?]é", min_size=1, max_size=20)
kinds = st.sampled_from(
    [("topic", "produce"), ("topic", "consume"), ("topic", "manage"), ("group", "consume"),
     ("group", "manage"), ("broker", "observe"), ("broker", "operate")]
)  # fmt: skip


@given(
    st.lists(st.tuples(names, kinds, names)), st.dictionaries(names, st.lists(names, min_size=1))
)
def test_what_is_written_is_read_again(rules, teams):
    permissions = Permissions(
        users={"u": [Token("id", "0" * 64, "today")]},
        teams={name: sorted(set(users)) for name, users in teams.items()},
        rules=[
            grant_of(who, verb, kind if kind == "broker" else f"{kind}:{pattern}")
            for who, (kind, verb), pattern in rules
        ],
    )
    assert parse(dump(permissions), "it") == permissions


@pytest.mark.parametrize(
    "rule",
    [
        ("alice", "consume", "orders"),
        ("alice", "consume", "topic:"),
        ("alice", "consume", "broker"),
        ("alice", "operate", "broker:x"),
        ("alice", "delete", "topic:a"),
        ("al ice", "consume", "topic:a"),
        ("@", "consume", "topic:a"),
        ("", "consume", "topic:a"),
        ("alice", "any", "topic:a"),
        ("alice", "consume", "topic:" + "a" * 300),
    ],
)
def test_a_rule_that_is_none_is_refused(rule):
    with pytest.raises(InvalidRequestError):
        grant_of(*rule)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"\xff", b'{"version": 2, "rules": []}', b'{"version": 1}',
     b'{"version": 1, "rules": [{"who": "a"}]}', b'{"version": 1, "rules": 5}',
     b'{"version": 1, "rules": [], "users": {"a": {"tokens": [{"sha256": "x"}]}}}',
     b'{"version": 1, "rules": [], "teams": {"a b": []}}', b"[" * 100_000,
     b'{"version": 1, "rules": [], "teams": {"shop": "alice"}}', b'{"version": 1, "rules": {}}'],
)  # fmt: skip
def test_what_is_no_permissions_file_is_refused_by_name(content):
    with pytest.raises(ConfigurationError, match="is no permissions file"):
        parse(content, "access.json")


class Source:
    """A file, a clock, and what a service makes of them."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "access.json"
        self.write(dump(Permissions()))
        self.source = PermissionSource(self.path)

    def write(self, content: bytes) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_bytes(content)
        os.replace(temporary, self.path)

    def rules(self) -> int:
        """How many there are: of the one that the tests write, or none."""
        self.source.look()
        return self.used()

    def used(self) -> int:
        wanted = Permission(ResourceKind.TOPIC, Verb.CONSUME, "t")
        return int(self.source.current().allows("a", wanted))


def test_a_change_is_used_although_no_client_calls(tmp_path):
    """A service that was asked nothing for long must not begin with what was allowed then."""
    assert LOOK_S < 1
    it = Source(tmp_path)
    ended = it.source.keep_current(0.01)
    try:
        it.write(dump(Permissions(rules=[grant_of("a", "consume", "topic:t")])))
        until(lambda: it.source.current().version == 1, "it was read again")
    finally:
        ended.set()
    assert it.used() == 1


def test_a_file_that_stays_unusable_is_one_line_of_the_log(tmp_path, caplog):
    it = Source(tmp_path)
    it.path.unlink()
    for _ in range(5):
        it.source.look()
    assert caplog.text.count("the previous ones stay in force") == 1


@pytest.mark.parametrize("bad", ["other", "gone", "a directory"])
def test_a_file_that_cannot_be_used_leaves_the_last_good_one(tmp_path, bad, caplog):
    it = Source(tmp_path)
    good = dump(Permissions(rules=[grant_of("a", "consume", "topic:t")]))
    it.write(good)
    assert it.rules() == 1
    if bad == "other":
        it.write(b"{")
    else:
        it.path.unlink()
        if bad == "a directory":
            it.path.mkdir()
    assert it.rules() == 1 and it.rules() == 1
    assert "the previous ones stay in force" in caplog.text
    if bad == "a directory":
        it.path.rmdir()
    it.write(dump(Permissions()))
    assert it.rules() == 0


def test_a_file_that_could_not_be_read_is_used_once_it_may_be(tmp_path, monkeypatch, caplog):
    """Giving it to the service changes neither its time of writing nor its size."""
    it = Source(tmp_path)
    it.write(dump(Permissions(rules=[grant_of("a", "consume", "topic:t")])))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", _refused)
        assert it.rules() == 0
    assert "the previous ones stay in force" in caplog.text
    it.path.chmod(0o640)
    assert it.rules() == 1


def _refused(*_: object) -> None:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_names_that_nothing_can_have_are_refused_and_not_remembered():
    table = PermissionTable(Permissions(rules=[grant_of("a", "consume", "topic:*")]), 0)
    before = tracemalloc_size(
        lambda: [
            table.allows(
                "a", Permission(ResourceKind.TOPIC, Verb.CONSUME, f"{number}" + "x" * 1_000_000)
            )
            for number in range(20)
        ]
    )
    assert before < 1_000_000
    assert not table.allows("a", Permission(ResourceKind.TOPIC, Verb.CONSUME, "x" * 256))
    assert table.allows("a", Permission(ResourceKind.TOPIC, Verb.CONSUME, "x" * 255))


def tracemalloc_size(work: Callable[[], object]) -> int:
    """What is left of the memory that it took."""
    tracemalloc.start()
    work()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size


def test_a_service_decides_as_the_command_line_does():
    permissions = Permissions(
        teams={"shop": ["alice", "bob"]},
        rules=[
            grant_of("@shop", "consume", "topic:orders-*"),
            grant_of("alice", "produce", "topic:a[b]?"),
            grant_of("*", "consume", "group:*"),
            grant_of("ops", "operate", "broker"),
        ],
    )
    table = PermissionTable(permissions, 0)
    names = ("", "orders-eu", "orders", "a[b]?", "ab?", "group")
    wanted = [
        Permission(kind, verb, name) for kind in ResourceKind for verb in Verb for name in names
    ]
    for who in ("alice", "bob", "ops", "unprivileged", "@shop", "*"):
        for each in wanted:
            for _ in range(2):
                assert table.allows(who, each) is (permissions.allowing(who, each) is not None)


@pytest.mark.parametrize("name", ["@shop", "*"])
def test_a_certificate_whose_name_looks_like_a_team_gives_what_everyone_has(name):
    rules = [grant_of("@shop", "produce", "topic:t"), grant_of("*", "consume", "topic:t")]
    table = PermissionTable(Permissions(teams={"shop": ["alice"]}, rules=rules), 0)
    assert table.allows(name, Permission(ResourceKind.TOPIC, Verb.CONSUME, "t"))
    assert not table.allows(name, Permission(ResourceKind.TOPIC, Verb.PRODUCE, "t"))


def test_a_service_does_not_start_on_what_is_no_permissions_file(tmp_path):
    with pytest.raises(ConfigurationError, match=r"access\.file"):
        PermissionSource(tmp_path / "missing.json")


def test_the_file_is_one_that_people_can_read():
    document = json.loads(dump(Permissions(rules=[grant_of("a", "consume", "topic:t")])))
    assert document["rules"] == [{"who": "a", "may": "consume", "what": "topic:t"}]
