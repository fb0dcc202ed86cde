"""Every method of every service: who may call it. The guard, the table and the file are the
production's; handlers stand behind them that record that they were reached."""

import asyncio
import json
import logging
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from stratamq_gateway.config import GatewayConfig

from stratamq.api.v1 import broker_pb2, commitlog_pb2, dispatcher_pb2
from stratamq.errors import ConfigurationError, NotPermittedError, UnauthenticatedError
from stratamq.formats.topics import DRAIN_TOPIC
from stratamq.rpc.methods import METHODS, rule_of
from stratamq.rpc.permission_file import AUTHORIZATION, BEARER, Permissions, dump, grant_of
from stratamq.rpc.permissions import OPERATE, RULES, Permission, ResourceKind, Verb
from stratamq.rpc.rooms import REGISTER
from stratamq.service.access import (
    AccessConfig,
    AccessControl,
    AuditLog,
    listening,
    require_guarded,
)
from stratamq.service.caller import Caller
from stratamq.service.grpc_callers import DirectCallers
from stratamq.service.permission_source import PermissionSource
from stratamq.service.server import Server
from tests.support.calls import with_status

MODULES = [import_module(f"stratamq.api.v1.{one.module}") for one in REGISTER.values()]
DESCRIBED = {
    method.name: method
    for module in MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
GROUP_STATE = (ResourceKind.GROUP, Verb.OBSERVE)
GIVES_GROUP_STATE = [
    *((may, ResourceKind.GROUP) for may in ("consume", "manage")),
    *((may, ResourceKind.BROKER) for may in ("observe", "operate")),
]
KNOWN_TO_ALL = sorted(name for name, rule in RULES.items() if not rule.needs)
GUARDED = sorted(name for name, rule in RULES.items() if rule.needs)
TOPIC, GROUP = "orders", "billing"
MEMBER = "stratamq-broker"


def test_every_method_of_every_service_is_in_the_table():
    assert sorted(RULES) == sorted(DESCRIBED) == sorted(METHODS)


def test_a_method_that_is_not_in_the_table_is_an_operators():
    assert rule_of("/some.Other/Method") is OPERATE


def test_that_a_broker_is_drained_is_seen_by_all_and_changed_by_operators_alone():
    topic = commitlog_pb2.ListTopicsRequest(topic=DRAIN_TOPIC)
    put = commitlog_pb2.PutTopicRequest()
    put.topic.topic = DRAIN_TOPIC
    altered = commitlog_pb2.PutTopicRequest()
    altered.change.topic = DRAIN_TOPIC
    operate = [Permission(ResourceKind.BROKER, Verb.OPERATE)]
    asked = (("ListTopics", topic, []), ("PutTopic", put, operate), ("PutTopic", altered, operate))
    for method, request, needed in asked:
        found = [one for need in RULES[method].needs for one in need.permissions(request)]
        assert found == needed


def test_health_alone_is_open_to_unauthenticated_clients():
    assert rule_of("/grpc.health.v1.Health/Check") is None
    for method in METHODS.values():
        assert rule_of(method.path) is not None


def test_streams_that_clients_write_need_nothing_that_their_messages_name():
    """The guard sees no message of such a stream."""
    for name, method in DESCRIBED.items():
        if method.client_streaming:
            assert not any(need.path for need in RULES[name].needs)


def filled(descriptor, depth: int = 0):
    """A request whose every topic and group has the test's name."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING and field.name in ("topic", "group"):
            if not field.is_repeated:
                setattr(message, field.name, TOPIC if field.name == "topic" else GROUP)
        elif field.type == FieldDescriptor.TYPE_STRING and field.name == "topics":
            getattr(message, field.name).append(TOPIC)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and depth < 3:
            if field.message_type.GetOptions().map_entry:
                continue
            inner = filled(field.message_type, depth + 1)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            elif inner.ByteSize():
                getattr(message, field.name).CopyFrom(inner)
    return message


def right(name: str) -> list[tuple[str, str, str]]:
    """Rules, each for user `right`, that together are what the method needs."""
    rules = []
    for need in RULES[name].needs:
        of_group_state = (need.kind, need.verb) == GROUP_STATE
        verb = Verb.CONSUME if need.verb is Verb.ANY or of_group_state else need.verb
        what = {
            ResourceKind.TOPIC: f"topic:{TOPIC}",
            ResourceKind.GROUP: f"group:{GROUP}",
            ResourceKind.BROKER: "broker",
        }
        rules.append(("right", verb.value, what[need.kind]))
    return rules


def wrong(name: str) -> list[tuple[str, str, str]]:
    """Everything but what the method needs."""
    needed = {(need.kind, need.verb) for need in RULES[name].needs}
    if GROUP_STATE in needed:
        needed |= {(kind, Verb(may)) for may, kind in GIVES_GROUP_STATE}
    of_any = {(need.kind, need.verb.value) for need in RULES[name].needs if not need.path}
    kinds = {
        ResourceKind.TOPIC: (["produce", "consume", "manage"], "topic:"),
        ResourceKind.GROUP: (["consume", "manage"], "group:"),
        ResourceKind.BROKER: (["observe", "operate", "scan"], "broker"),
    }
    rules = []
    for kind, (verbs, what) in kinds.items():
        for verb in verbs:
            needs = {each.value for each_kind, each in needed if each_kind is kind}
            gives = {verb, *({"observe"} if verb == "operate" else {}), "any"}
            if kind is ResourceKind.BROKER:
                if (not gives & needs and "member" not in needs) or "member" in needs:
                    rules.append(("wrong", verb, what))
            elif (kind, verb) in of_any:
                continue  # of any topic at all
            elif needs and gives & needs:
                rules.append(("wrong", verb, what + "another"))
            else:
                rules.append(("wrong", verb, what + "*"))
    return rules


class Guarded:
    """A server with all methods, behind a permissions file."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "access.json"
        self.permissions = Permissions()
        self.tokens = {name: self.permissions.add_token(name, "") for name in ("right", "wrong")}
        self.now_ns = 0
        self.reached: list[str] = []
        self.write()
        self.source = PermissionSource(self.path)
        self.control = AccessControl(self.source, [MEMBER], AuditLog(lambda: self.now_ns))
        self.server = Server("test", stop_grace_ms=100, access=self.control)
        for module in MODULES:
            for service in module.DESCRIPTOR.services_by_name.values():
                self.server.add_generic(self._handlers(service))

    def set_rules(self, rules: list[tuple[str, str, str]]) -> None:
        self.permissions.rules = [grant_of(*rule) for rule in rules]
        self.write()
        self.source.look()
        self.now_ns += 10_000_000_000

    def write(self) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_bytes(dump(self.permissions))
        temporary.replace(self.path)

    def _handlers(self, service) -> grpc.GenericRpcHandler:
        handlers = {}
        for method in service.methods:
            read = GetMessageClass(method.input_type).FromString
            if method.client_streaming:
                handlers[method.name] = grpc.stream_stream_rpc_method_handler(
                    self._stream(method.name)
                )
            elif method.server_streaming:
                handlers[method.name] = grpc.unary_stream_rpc_method_handler(
                    self._stream(method.name), read
                )
            else:
                handlers[method.name] = grpc.unary_unary_rpc_method_handler(
                    self._unary(method.name), read
                )
        return grpc.method_handlers_generic_handler(service.full_name, handlers)

    def _unary(self, name: str):
        async def answer(request, context) -> bytes:
            self.reached.append(name)
            return b""

        return answer

    def _stream(self, name: str):
        async def answer(request, context):
            self.reached.append(name)
            yield b""

        return answer

    async def call(self, name: str, who: str = "") -> str:
        """The status, of `who` by a token; and whether the handler was reached agrees."""
        method, described = METHODS[name], DESCRIBED[name]
        metadata = [(AUTHORIZATION, BEARER + self.tokens.get(who, who))] if who else []
        request = filled(described.input_type).SerializeToString()
        async with grpc.aio.insecure_channel(self.server.address) as channel:
            call = getattr(channel, method.kind)(method.path)

            async def ask() -> None:
                self.reached.clear()
                asked = iter([request]) if described.client_streaming else request
                answer = call(asked, metadata=metadata, timeout=60)
                if method.kind.endswith("stream"):
                    async for _ in answer:
                        pass
                else:
                    await answer

            try:
                await with_status(ask)
                status = "OK"
            except grpc.aio.AioRpcError as error:
                status = error.code().name
                assert status != "INTERNAL", error
        assert self.reached == ([name] if status == "OK" else [])
        return status


@pytest.fixture(scope="module")
def guarded(run, tmp_path_factory) -> Iterator[Guarded]:
    async def made() -> Guarded:
        guarded = Guarded(tmp_path_factory.mktemp("guarded"))
        await guarded.server.start("127.0.0.1:0")
        return guarded

    found = run(made())
    yield found
    run(found.server.stop())


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_caller_without_an_identity_is_refused(guarded, run, name):
    assert run(guarded.call(name)) == "UNAUTHENTICATED"


@pytest.mark.parametrize("name", sorted(RULES))
def test_an_unknown_token_is_refused(guarded, run, name):
    assert run(guarded.call(name, "no-such-token")) == "UNAUTHENTICATED"


def test_an_unknown_method_is_refused_whoever_calls_it(guarded, run):
    async def call(metadata: list[tuple[str, str]]) -> str:
        async with grpc.aio.insecure_channel(guarded.server.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary("/a.b/C")(b"", metadata=metadata, timeout=60)
        return refused.value.code().name

    guarded.set_rules(right("Pull"))
    assert run(call([(AUTHORIZATION, BEARER + guarded.tokens["right"])])) == "UNIMPLEMENTED"
    assert run(call([])) == "UNIMPLEMENTED"


@pytest.mark.parametrize("name", GUARDED)
def test_a_caller_with_all_other_permissions_is_refused(guarded, run, name):
    guarded.set_rules(wrong(name))
    assert run(guarded.call(name, "wrong")) == "PERMISSION_DENIED"


@pytest.mark.parametrize("name", GUARDED)
def test_a_caller_with_the_permission_is_let_in(guarded, run, name):
    guarded.set_rules(right(name))
    assert run(guarded.call(name, "right")) == "OK"


@pytest.mark.parametrize("may, kind", GIVES_GROUP_STATE)
def test_where_a_group_is_see_its_consumers_its_managers_and_observers(guarded, run, may, kind):
    rules = {
        ResourceKind.GROUP: [("right", may, f"group:{GROUP}"), ("wrong", may, f"group:{GROUP}s")],
        ResourceKind.BROKER: [("right", may, "broker")],
    }
    guarded.set_rules(rules[kind])
    for name in ("ListGroups", "GetCommittedOffsets", "ListGroupMembers", "ListHandOuts"):
        assert run(guarded.call(name, "right")) == "OK", name
        assert run(guarded.call(name, "wrong")) == "PERMISSION_DENIED", name


@pytest.mark.parametrize("name", [name for name in GUARDED if len(RULES[name].needs) > 1])
def test_each_single_permission_of_a_method_is_needed(guarded, run, name):
    rules = right(name)
    names = {rule[2] for rule in rules}
    if len(names) < 2:
        pytest.skip("both are of one topic")
    for left_out in range(len(rules)):
        guarded.set_rules([rule for at, rule in enumerate(rules) if at != left_out])
        assert run(guarded.call(name, "right")) == "PERMISSION_DENIED"


@pytest.mark.parametrize("name", KNOWN_TO_ALL)
def test_what_needs_an_identity_alone_is_open_to_every_user(guarded, run, name):
    guarded.set_rules([])
    assert run(guarded.call(name, "right")) == "OK"


@pytest.mark.parametrize("taken", ["permission", "token"])
def test_an_open_stream_ends_when_what_gave_it_is_taken(run, tmp_path, taken):
    """At its next answer, once the file was read again."""
    guarded = Guarded(tmp_path)
    answers: list[int] = []

    async def endless(request, context):
        while True:
            answers.append(1)
            if len(answers) == 3 and taken == "permission":
                guarded.set_rules([])
            elif len(answers) == 3:
                guarded.permissions.users["right"] = []
                guarded.set_rules(right("PullStream"))
            yield b""

    guarded._stream = lambda name: endless
    guarded.server = Server(
        "test",
        stop_grace_ms=100,
        access=AccessControl(guarded.source, [], AuditLog(lambda: guarded.now_ns)),
    )
    guarded.server.add_generic(
        guarded._handlers(dispatcher_pb2.DESCRIPTOR.services_by_name["DispatcherService"])
    )
    guarded.set_rules(right("PullStream"))

    async def scenario() -> str:
        await guarded.server.start("127.0.0.1:0")
        metadata = [(AUTHORIZATION, BEARER + guarded.tokens["right"])]
        request = filled(DESCRIBED["PullStream"].input_type).SerializeToString()
        async with grpc.aio.insecure_channel(guarded.server.address) as channel:
            call = channel.unary_stream(METHODS["PullStream"].path)(request, metadata=metadata)
            try:
                async for _ in call:
                    pass
            except grpc.aio.AioRpcError as error:
                return error.code().name
            finally:
                await guarded.server.stop()
        return "OK"

    refused = {"permission": "PERMISSION_DENIED", "token": "UNAUTHENTICATED"}
    assert run(scenario()) == refused[taken]
    assert len(answers) == 3


def test_a_token_that_was_taken_back_sends_nothing_more_on_an_open_append_stream(tmp_path):
    guarded = Guarded(tmp_path)
    control = AccessControl(guarded.source, [], AuditLog())
    guarded.set_rules([("right", "produce", f"topic:{TOPIC}")])
    caller = identified(control, "ipv4:127.0.0.1:5", None, guarded.tokens["right"])
    control.require_topics(caller, [TOPIC], "AppendStream")
    guarded.permissions.users["right"] = []
    guarded.set_rules([("right", "produce", f"topic:{TOPIC}")])
    with pytest.raises(UnauthenticatedError, match="was revoked"):
        control.require_topics(caller, [TOPIC], "AppendStream")


def test_a_request_of_very_many_names_lets_others_in_between(guarded, run):
    """The event loop is everybody's."""
    guarded.set_rules([("right", "consume", "topic:*"), ("right", "consume", "group:*")])
    control = AccessControl(guarded.source, [], AuditLog())
    caller = identified(control, "ipv4:127.0.0.1:5", None, guarded.tokens["right"])
    request = dispatcher_pb2.PullStreamRequest(
        queues=[dispatcher_pb2.PullQueue(topic=f"t{number}") for number in range(10_000)]
    )

    async def turns() -> int:
        asking = asyncio.create_task(
            control.require(caller, RULES["PullStream"], "PullStream", request)
        )
        count = 0
        while not asking.done():
            count += 1
            await asyncio.sleep(0)
        await asking
        return count

    assert run(turns()) >= 10_000 // 256


# --- identities ---


def identified(
    control: AccessControl | None, peer: str, shown: dict | None = None, token: str = ""
) -> Caller:
    """The caller of a call of gRPC: `shown` over TLS, None in clear."""
    metadata = ((AUTHORIZATION, BEARER + token),) if token else ()
    context = SimpleNamespace(
        peer=lambda: peer, auth_context=lambda: shown or {}, invocation_metadata=lambda: metadata
    )
    return DirectCallers(control, encrypted=shown is not None).identify(context, "")


TLS = {"transport_security_type": [b"ssl"]}


@pytest.mark.parametrize(
    ("peer", "shown", "with_token", "name", "trusted"),
    [
        ("unix:", None, False, "local", True),
        ("ipv4:127.0.0.1:5", None, False, "", False),
        ("ipv4:127.0.0.1:5", None, True, "right", False),
        ("ipv6:[::1]:5", None, True, "right", False),
        ("ipv6:%5B::1%5D:5", None, True, "right", False),
        ("ipv4:10.0.0.1:5", None, True, "", False),
        ("ipv4:1.127.0.0:5", None, True, "", False),
        ("ipv6:[::ffff:127.0.0.1]:5", None, True, "right", False),
        ("ipv6:[::ffff:10.0.0.1]:5", None, True, "", False),
        ("unix-abstract:right", None, True, "", False),
        ("nonsense", None, True, "", False),
        ("unix:", {**TLS, "x509_common_name": [b"alice"]}, False, "local", True),
        ("ipv4:10.0.0.1:5", TLS, True, "right", False),
        ("ipv4:10.0.0.1:5", TLS, False, "", False),
        ("ipv4:10.0.0.1:5", {**TLS, "x509_common_name": [b"alice"]}, False, "alice", False),
        ("ipv4:10.0.0.1:5", {**TLS, "x509_common_name": [MEMBER.encode()]}, False, MEMBER, True),
        ("ipv4:10.0.0.1:5", {**TLS, "x509_common_name": [b"local"]}, False, "local", False),
    ],
)
def test_who_a_caller_is(tmp_path, peer, shown, with_token, name, trusted):
    guarded = Guarded(tmp_path)
    control = AccessControl(guarded.source, [MEMBER], AuditLog())
    caller = identified(control, peer, shown, guarded.tokens["right"] if with_token else "")
    assert (caller.name, caller.trusted) == (name, trusted)


def test_a_token_that_really_comes_in_clear_by_another_address_is_refused(run, tmp_path):
    """As gRPC describes the connection, and not as we imagine it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        host = probe.getsockname()[0]
    guarded = Guarded(tmp_path)

    async def scenario() -> list[str]:
        await guarded.server.start("0.0.0.0:0")
        port = guarded.server.address.rpartition(":")[2]
        answers = []
        for guarded.server.address in (f"127.0.0.1:{port}", f"{host}:{port}"):
            answers.append(await guarded.call("GetStatus", "right"))
        await guarded.server.stop()
        return answers

    assert run(scenario()) == ["OK", "UNAUTHENTICATED"]


def test_an_abstract_socket_is_refused_where_callers_are_asked_who_they_are(tmp_path):
    """No directory guards it, and who comes by a socket is trusted."""
    require_guarded(AccessConfig(file=tmp_path), ["unix:/run/x.sock"])
    require_guarded(AccessConfig(), ["unix-abstract:x"])
    with pytest.raises(ConfigurationError, match="every process of the machine"):
        require_guarded(AccessConfig(file=tmp_path), ["127.0.0.1:1", "unix-abstract:x"])


@pytest.mark.parametrize(
    "given",
    [
        {"address": "10.0.0.1:1"},
        {"remoting_address": "127.0.0.1:1", "remoting_further_addresses": ("10.0.0.1:1",)},
    ],
)
def test_no_address_that_others_reach_is_overlooked(given):
    where = listening(GatewayConfig(root=Path("store"), **given))
    with pytest.raises(ConfigurationError, match=r"10\.0\.0\.1:1: other machines"):
        require_guarded(AccessConfig(), where)


@pytest.mark.parametrize(
    ("host", "encrypted", "shown"),
    [("127.0.0.1", False, True), ("10.0.0.1", True, True), ("10.0.0.1", False, False)],
)
def test_metrics_take_a_token_over_tls_or_from_this_machine(tmp_path, host, encrypted, shown):
    guarded = Guarded(tmp_path)
    control = AccessControl(guarded.source, [], AuditLog())
    guarded.set_rules([("right", "observe", "broker")])
    origin = Caller(host, encrypted=encrypted)
    assert control.observer(origin, "", BEARER + guarded.tokens["right"]) is shown
    assert not control.observer(origin, "", BEARER + guarded.tokens["wrong"])


def test_topics_of_an_append_stream_are_asked_for_one_by_one(tmp_path):
    guarded = Guarded(tmp_path)
    control = AccessControl(guarded.source, [], AuditLog())
    guarded.set_rules([("right", "produce", f"topic:{TOPIC}")])
    caller = identified(control, "ipv4:127.0.0.1:5", None, guarded.tokens["right"])
    control.require_topics(caller, [TOPIC], "AppendStream")
    with pytest.raises(Exception, match="right may not produce topic:secret"):
        control.require_topics(caller, [TOPIC, "secret"], "AppendStream")


# --- the audit log ---


def test_each_refusal_has_a_line_without_the_token_and_lines_are_bounded(guarded, run, caplog):
    guarded.set_rules([])
    run(guarded.call("Pull", "right"))  # what was left out before is counted here
    guarded.now_ns += 1_000_000_000
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="stratamq.audit"):
        run(guarded.call("Pull", "right"))
        [line] = [record for record in caplog.records if record.name == "stratamq.audit"]
        assert (line.who, line.method) == ("right", "Pull")
        assert guarded.tokens["right"] not in json.dumps(line.__dict__, default=str)
        caplog.clear()
        guarded.now_ns += 1_000_000_000

        async def many() -> None:
            for _ in range(60):
                await guarded.call("Pull", "right")

        run(many())
        assert len(caplog.records) == 20
        caplog.clear()
        guarded.now_ns += 1_000_000_000
        run(guarded.call("Pull", "right"))
        assert [record.message for record in caplog.records] == ["lines left out", "refused"]
        assert caplog.records[0].count == 40


def test_a_flood_of_unauthenticated_calls_hides_no_refusal_and_no_operators_act(tmp_path, caplog):
    guarded = Guarded(tmp_path)
    guarded.set_rules([("right", "operate", "broker")])
    unauthenticated = identified(guarded.control, "ipv4:127.0.0.1:5")
    user = identified(guarded.control, "ipv4:127.0.0.1:5", None, guarded.tokens["right"])
    for _ in range(60):
        with pytest.raises(UnauthenticatedError):
            guarded.control.admit(unauthenticated, "Pull")
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="stratamq.audit"):
        asyncio.run(guarded.control.require(user, RULES["RunCleaning"], "RunCleaning", None))
        with pytest.raises(NotPermittedError):
            asyncio.run(guarded.control.require(user, RULES["Follow"], "Follow", None))
    assert [record.message for record in caplog.records] == ["operator's act", "refused"]


def test_a_call_of_no_method_has_a_line(guarded, run, caplog):
    guarded.now_ns += 1_000_000_000

    async def called() -> str:
        async with grpc.aio.insecure_channel(guarded.server.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary("/some.Other/../../Method")(b"", timeout=60)
            return refused.value.code().name

    with caplog.at_level(logging.INFO, logger="stratamq.audit"):
        assert run(called()) == "UNIMPLEMENTED"
    [line] = [record for record in caplog.records if record.message == "refused"]
    assert (line.method, line.reason) == ("Method", "there is no such method")


def test_each_operators_act_has_a_line(guarded, run, caplog):
    guarded.now_ns += 1_000_000_000
    guarded.set_rules([("right", "operate", "broker")])
    with caplog.at_level(logging.INFO, logger="stratamq.audit"):
        run(guarded.call("RunCleaning", "right"))
        run(guarded.call("GetJanitorStatus", "right"))
    assert [(one.message, one.who, one.method) for one in caplog.records] == [
        ("operator's act", "right", METHODS["RunCleaning"].path)
    ]


@pytest.mark.parametrize(
    ("permission", "description"),
    [
        (Permission(ResourceKind.TOPIC, Verb.PRODUCE, "t"), "produce topic:t"),
        (Permission(ResourceKind.TOPIC, Verb.PRODUCE), "produce any topic"),
        (Permission(ResourceKind.TOPIC, Verb.ANY, "t"), "use topic:t"),
        (Permission(ResourceKind.BROKER, Verb.OPERATE), "operate broker"),
    ],
)
def test_a_missing_permission_is_described_in_words(permission, description):
    assert str(permission) == description


def test_describe_broker_needs_an_identity_alone():
    service = broker_pb2.DESCRIPTOR.services_by_name["BrokerService"]
    assert rule_of(f"/{service.full_name}/DescribeBroker") == rule_of(METHODS["GetStatus"].path)
