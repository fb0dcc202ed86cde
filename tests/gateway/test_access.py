"""Users and permissions as tools of RocketMQ manage them: codes 3001 to 3010, `spec/remoting.md`
13.3. They are those of `stratamq acl`, and nothing else."""

import json

import pytest
from stratamq_gateway.admin_access import UserChange

from stratamq.errors import UnavailableError
from stratamq.rpc.permission_file import Permissions, dump, grant_of
from stratamq.service.permission_changes import read_permissions
from tests.gateway.remoting import Remoting, send
from tests.gateway.test_gateway import NO_PERMISSION, OK, ROOMS, address
from tests.support.brokers import Broker
from tests.support.waiting import until

CREATE_USER, UPDATE_USER, DELETE_USER, GET_USER, LIST_USERS = range(3001, 3006)
CREATE, UPDATE, DELETE, GET, LIST = range(3006, 3011)
INVALID, NO_USER, NO_POLICY, BROKEN = 29, 3001, 3002, 1
RULES = (
    ("root", "operate", "broker"),
    ("root", "scan", "broker"),
    ("root", "produce", "topic:*"),
    ("root", "consume", "topic:*"),
    ("root", "manage", "topic:*"),
    ("root", "consume", "group:*"),
    ("root", "manage", "group:*"),
    ("ops", "operate", "broker"),
    ("ops", "produce", "topic:orders-*"),
    ("shop", "produce", "topic:orders-eu"),
    ("@staff", "consume", "topic:news"),
    ("service", "member", "broker"),
)
LONG = "a-secret-of-some-length"


class Tool:
    """Signs as one user."""

    def __init__(self, client: Remoting) -> None:
        self._client = client

    def user(self, code: int, name: str, **said: str):
        body = json.dumps({"username": name} | said).encode() if said else b""
        return self._client.ask(code, body, username=name)

    def policy(self, who: str, resource: str, *actions: str, code: int = CREATE, **more: object):
        entry = {"resource": resource, "actions": actions, "decision": "Allow", **more}
        said = {"subject": f"User:{who}", "policies": [{"entries": [entry]}]}
        return self._client.ask(code, json.dumps(said).encode(), subject=f"User:{who}")

    def ask(self, code: int, body: bytes = b"", **fields: object):
        return self._client.ask(code, body, **fields)


class Guarded:
    def __init__(self, where: str, file, secrets: dict[str, str]) -> None:
        self.where = where
        self.file = file
        self.secrets = secrets
        self._times = 0

    def reset(self) -> None:
        self._times += 1
        permissions = Permissions(rules=[grant_of(*one) for one in RULES])
        permissions.teams["staff"] = ["alice"]
        for user, secret in self.secrets.items():
            permissions.set_secret(user, secret, "")
        permissions.set_secret("reader", f"secret-number-{self._times}", "")
        self.file.write_bytes(dump(permissions))

    def wait(self) -> None:
        """Until the file is read."""
        with self.connected("reader", f"secret-number-{self._times}") as client:
            until(lambda: "signature" not in client.ask(LIST_USERS).remark, "the file is read")

    def rules(self, who: str) -> set[str]:
        return {str(rule) for rule in read_permissions(self.file).rules if rule.who == who}

    def connected(self, user: str, secret: str = "") -> Remoting:
        return Remoting(self.where, key=(user, secret or self.secrets[user]))


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    place = tmp_path_factory.mktemp("access")
    secrets = {"root": "secret-of-root", "ops": "secret-of-ops", "shop": "secret-of-shop"}
    guarded = Guarded("", place / "permissions.json", secrets)
    guarded.reset()
    settings = (f"access.file={guarded.file}", "gateway.remoting_address=127.0.0.1:0")
    with Broker(place / "store", place / "logs", settings) as broker:
        broker.start(ROOMS)
        guarded.where = address(broker)
        yield guarded


@pytest.fixture
def guarded(broker):
    broker.reset()
    broker.wait()
    return broker


@pytest.fixture
def root(guarded):
    with guarded.connected("root") as client:
        yield Tool(client)


@pytest.fixture
def ops(guarded):
    with guarded.connected("ops") as client:
        yield Tool(client)


def test_a_user_that_is_made_signs_and_does_what_its_policy_allows(guarded, root):
    assert root.user(CREATE_USER, "till", password=LONG, userType="Normal").code == OK
    assert root.policy("till", "Topic:orders-*", "Pub").code == OK
    with guarded.connected("till", LONG) as client:
        until(lambda: send(client, "orders-eu", b"x").code == OK, "the file is read")
        assert send(client, "payments", b"x").code == NO_PERMISSION
        assert root.user(UPDATE_USER, "till", password=f"another-{LONG}").code == OK
        until(lambda: send(client, "orders-eu", b"x").code == NO_PERMISSION, "the file is read")
    assert root.user(DELETE_USER, "till").code == OK
    assert guarded.rules("till") == set(), "who has the name next gets nothing"


def test_what_tools_change_is_what_acl_lists(guarded, root):
    for resource, *actions in (
        ("Topic:a*", "Pub", "Sub"),
        ("Topic:b", "Create", "Update", "Delete"),
        ("Group:g", "Sub", "Get", "List"),
        ("Cluster:DefaultCluster", "Get", "List"),
    ):
        assert root.policy("till", resource, *actions).code == OK
    assert guarded.rules("till") == {
        "till may produce topic:a*",
        "till may consume topic:a*",
        "till may manage topic:b",
        "till may consume group:g",
        "till may observe broker",
    }


def test_policies_are_shown_as_they_were_given(root):
    assert root.policy("till", "Topic:a*", "Pub", "Sub").code == OK
    assert root.policy("till", "Group:g", "All", code=UPDATE).code == OK
    (shown,) = root.ask(GET, subject="User:till").document["policies"]
    assert [(one["resource"], one["actions"], one["decision"]) for one in shown["entries"]] == [
        ("Topic:a*", ["Pub", "Sub", "Get", "List"], "Allow"),
        ("Group:g", ["Sub", "Get", "List", "Create", "Update", "Delete"], "Allow"),
    ]
    found = root.ask(LIST, subjectFilter="till", resourceFilter="Group").document
    assert [len(one["policies"][0]["entries"]) for one in found] == [1]
    assert {one["subject"] for one in root.ask(LIST).document} > {"User:till", "User:@staff"}
    for one in shown["entries"]:
        assert root.policy("till", one["resource"], *one["actions"]).code == OK
    assert root.ask(GET, subject="User:till").document["policies"] == [shown], "given once more"


def test_what_no_policy_can_say_is_shown_and_stays(guarded, root):
    shown = root.ask(GET, subject="User:root").document["policies"][0]["entries"][0]
    assert shown["resource"] == "Cluster:DefaultCluster"
    assert shown["actions"] == ["Create", "Update", "Delete", "Get", "List", "Scan"]
    assert root.policy("root", "Cluster:*", "All", code=UPDATE).code == OK
    assert "root may scan broker" in guarded.rules("root")


def test_a_policy_of_the_same_resource_is_replaced_and_others_stay(guarded, root):
    assert root.policy("till", "Topic:a", "Pub").code == OK
    assert root.policy("till", "Topic:b", "Pub").code == OK
    assert root.policy("till", "Topic:a", "Sub", code=UPDATE).code == OK
    assert guarded.rules("till") == {"till may consume topic:a", "till may produce topic:b"}
    assert root.ask(DELETE, subject="User:till", resource="Topic:b").code == OK
    assert guarded.rules("till") == {"till may consume topic:a"}
    assert root.ask(DELETE, subject="User:till", resource="Topic:b").code == NO_POLICY
    assert root.ask(DELETE, subject="User:till").code == OK
    assert root.ask(GET, subject="User:till").code == NO_POLICY


@pytest.mark.parametrize(
    ("resource", "actions", "more", "why"),
    [
        ("Topic:a", ["Pub"], {"decision": "Deny"}, "rules only allow here"),
        ("Topic:a", ["Pub"], {"sourceIps": ["10.0.0.0/8"]}, "wherever it calls from"),
        ("Topic:a", ["Pub", "Get"], {}, "get of Topic:a is no permission by itself"),
        ("Topic:a", ["Create", "Delete"], {}, "create, delete of Topic:a"),
        ("Group:a", ["Pub"], {}, "pub of Group:a"),
        ("Cluster:Other", ["All"], {}, "this one is DefaultCluster"),
        ("Queue:a", ["All"], {}, "Topic:NAME, Group:NAME"),
        ("Topic:a", [], {}, "names no actions"),
        ("*", ["Pub"], {}, "only All can be given at once"),
        ("Topic:\x07", ["Pub"], {}, "no control characters"),
    ],
)
def test_what_no_rule_can_say_is_refused_whole(guarded, root, resource, actions, more, why):
    good = {"resource": "Topic:b", "actions": ["Pub"], "decision": "Allow"}
    bad = {"resource": resource, "actions": actions, "decision": "Allow", **more}
    said = json.dumps({"policies": [{"entries": [good, bad]}]}).encode()
    refused = root.ask(CREATE, said, subject="User:till")
    assert refused.code == INVALID and why in refused.remark
    assert guarded.rules("till") == set()


@pytest.mark.parametrize(
    ("user", "said", "why"),
    [
        ("till", {"password": "short"}, "8 to 255 visible ASCII characters"),
        ("till", {"userType": "Normal"}, "needs a password"),
        ("till", {"password": LONG, "userStatus": "disable"}, "cannot be disabled"),
        ("till", {"password": LONG, "userType": "King"}, "no type 'King'"),
        ("till", {"password": "secret-of-shop"}, "another user has this secret key"),
        ("ti:ll", {"password": LONG}, "is no name"),
        ("shop", {"password": LONG}, "updateUser changes it"),
    ],
)
def test_a_user_that_cannot_be_is_not_made(guarded, root, user, said, why):
    before = guarded.file.read_bytes()
    refused = root.user(CREATE_USER, user, **said)
    assert refused.code == INVALID and why in refused.remark
    assert guarded.file.read_bytes() == before


def test_a_user_is_made_at_two_brokers_with_one_file(root):
    for _ in range(2):
        assert root.user(CREATE_USER, "till", password=LONG).code == OK


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[1]",
        b'{"username":["a"],"password":1,"userType":2}',
        b'{"policies":5}',
        b'{"policies":[5]}',
        b'{"policies":[{"policyType":1,"entries":[]}]}',
        b'{"policies":[{"entries":[{"resource":1,"actions":2,"sourceIps":3}]}]}',
        b'{"policies":[{"entries":[{"resource":"Topic:a","actions":5}]}]}',
        b"[" * 60_000,
        b" " * 70_000,
    ],
)
def test_a_body_that_is_none_changes_nothing(guarded, root, body):
    before = guarded.file.read_bytes()
    for code in (CREATE_USER, UPDATE_USER, CREATE, UPDATE):
        refused = root.ask(code, body, subject="User:till", username="till")
        assert refused.code in (INVALID, NO_USER)
    assert guarded.file.read_bytes() == before


@pytest.mark.parametrize("code", [CREATE_USER, UPDATE_USER, DELETE_USER, GET_USER, DELETE, GET])
def test_a_name_is_not_given_back_at_its_length(root, code):
    name = "\x01" * (1 << 20)
    answer = root.ask(code, json.dumps({"password": LONG}).encode(), username=name, subject=name)
    assert answer.code != OK and len(answer.remark) < 2_000


def test_a_user_that_is_no_text_is_refused(root):
    body = json.dumps({"username": "\ud800", "password": LONG}).encode()
    answer = root.ask(CREATE_USER, body)
    assert (answer.code, "half of a surrogate" in answer.remark) == (INVALID, True)


def test_who_is_nobody_is_not_found(root):
    assert root.user(GET_USER, "nobody").code == NO_USER
    assert root.user(DELETE_USER, "nobody").code == NO_USER
    assert root.user(UPDATE_USER, "nobody", password=LONG).code == NO_USER


def test_a_secret_key_is_told_to_nobody(root):
    shown = root.user(GET_USER, "shop")
    assert shown.document == {"username": "shop", "userType": "Normal", "userStatus": "enable"}
    everyone = root.ask(LIST_USERS)
    assert b"secret" not in everyone.body
    named = {one["username"]: one["userType"] for one in everyone.document}
    assert named["root"] == "Super" and named["alice"] == "Normal" and "service" in named
    assert [one["username"] for one in root.ask(LIST_USERS, filter="sho").document] == ["shop"]


def test_a_user_becomes_super_and_normal_again(guarded, root):
    assert root.user(UPDATE_USER, "shop", userType="Super").code == OK
    assert root.user(GET_USER, "shop").document["userType"] == "Super"
    assert root.user(UPDATE_USER, "shop", userType="Normal").code == OK
    assert guarded.rules("shop") == {"shop may produce topic:orders-eu"}


def test_a_user_without_operate_manages_and_sees_nobody(guarded):
    before = guarded.file.read_bytes()
    with guarded.connected("shop") as client:
        shop = Tool(client)
        for reply in (
            shop.user(CREATE_USER, "till", password=LONG),
            shop.user(UPDATE_USER, "shop", password=LONG),
            shop.user(DELETE_USER, "ops"),
            shop.user(GET_USER, "shop"),
            shop.ask(LIST_USERS),
            shop.policy("shop", "Topic:orders-eu", "Pub"),
            shop.ask(DELETE, subject="User:ops"),
            shop.ask(GET, subject="User:shop"),
            shop.ask(LIST),
        ):
            assert reply.code == NO_PERMISSION
    assert guarded.file.read_bytes() == before


def test_no_one_gives_what_they_do_not_have(guarded, ops):
    assert ops.policy("shop", "Topic:orders-us", "Pub").code == OK
    assert ops.policy("shop", "Topic:orders-u*", "Pub").code == OK
    before = guarded.file.read_bytes()
    for reply in (
        ops.policy("ops", "Topic:*", "Pub"),
        ops.policy("ops", "Topic:orders*", "Pub"),
        ops.policy("ops", "Topic:orders-us", "Pub", "Sub"),
        ops.policy("ops", "*", "All"),
        ops.user(UPDATE_USER, "ops", userType="Super"),
        ops.user(CREATE_USER, "till", password=LONG, userType="Super"),
        ops.user(UPDATE_USER, "root", password=LONG),
        ops.user(CREATE_USER, "service", password=LONG),
        ops.user(CREATE_USER, "alice", password=LONG),
    ):
        assert reply.code == NO_PERMISSION
    assert guarded.file.read_bytes() == before
    assert ops.user(UPDATE_USER, "shop", password=LONG).code == OK, "it may do all that shop may"


def test_a_secret_key_is_not_set_when_its_user_may_do_more_than_the_caller_was_asked_for():
    """Another change came between the question and the file's lock."""
    permissions = Permissions(rules=[grant_of("ops", "operate", "broker")])
    permissions.set_secret("ops", LONG, "")
    change = UserChange("ops", f"another-{LONG}", None, False, "", given=())
    with pytest.raises(UnavailableError):
        change.apply(permissions)
    assert permissions.users["ops"][0].secret == LONG


def test_without_a_permissions_file_there_are_no_users(tmp_path):
    settings = ("gateway.remoting_address=127.0.0.1:0",)
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        with Remoting(address(broker)) as client:
            refused = Tool(client).user(CREATE_USER, "till", password=LONG)
            assert refused.code == BROKEN and "authentication is disabled" in refused.remark
            assert client.ask(LIST).code == BROKEN
