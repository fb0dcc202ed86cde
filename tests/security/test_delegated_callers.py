"""Callers on whose behalf a front calls: permissions, limits and audit are those of direct callers;
no other socket takes a caller from metadata, and the front's takes nothing else."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.api.v1.broker_pb2 import DelegatedCaller
from stratamq.rpc import discovery
from stratamq.rpc.address import split_address
from stratamq.rpc.credentials import Credentials
from stratamq.rpc.methods import METHODS
from stratamq.rpc.permission_file import Permissions, digest_of, dump, grant_of
from stratamq.service.access import AccessControl, AuditLog
from stratamq.service.caller import Caller
from stratamq.service.client_limits import LimitsConfig
from stratamq.service.grpc_callers import DELEGATED, delegation
from stratamq.service.listening import MAX_STREAMS
from stratamq.service.permission_source import PermissionSource
from stratamq.service.server import Server

SERVICE = pb.DESCRIPTOR.services_by_name["DispatcherService"].full_name
HEALTH = "/grpc.health.v1.Health/Check"
MEMBER = "stratamq-broker"
ELSEWHERE = Caller("10.1.2.3", 5_000, encrypted=True)


class Served:
    """A service with a method that waits if it is told to, on its three listeners."""

    def __init__(self, root: Path, *, authenticates: bool = True, **limits: int) -> None:
        self.permissions = Permissions(
            teams={"shop": ["tess"]},
            rules=[
                grant_of(who, "consume", "topic:orders")
                for who in ("alice", "carol", "local", MEMBER)
            ],
        )
        self.tokens = {name: self.permissions.add_token(name, "") for name in ("alice", "bob")}
        self.file = root / "access.json"
        self.now_ns = 0
        self.write()
        self.source = PermissionSource(self.file)
        control = AccessControl(self.source, [MEMBER], AuditLog(lambda: self.now_ns))
        self.server = Server(
            "test",
            root=root,
            stop_grace_ms=100,
            access=control if authenticates else None,
            limits=LimitsConfig(**limits),
        )
        handlers = {
            "Pull": grpc.unary_unary_rpc_method_handler(self.pull, pb.PullRequest.FromString),
            "PullStream": grpc.unary_stream_rpc_method_handler(
                self.pull_stream, pb.PullStreamRequest.FromString
            ),
        }
        self.server.add_generic(grpc.method_handlers_generic_handler(SERVICE, handlers))
        self.reached: list[Caller] = []
        self.arrived = asyncio.Condition()
        self.go_on = asyncio.Event()

    def write(self) -> None:
        self.file.write_bytes(dump(self.permissions))

    async def pull(self, request, call) -> bytes:
        async with self.arrived:
            self.reached.append(call.caller)
            self.arrived.notify_all()
        if request.wait_ms:
            await self.go_on.wait()
        return b""

    async def pull_stream(self, request, call) -> AsyncIterator[bytes]:
        while True:
            yield b""
            await self.go_on.wait()

    async def until_reached(self, count: int) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.reached) >= count)

    def user(self, name: str, origin: Caller = ELSEWHERE) -> Caller:
        """A caller whom a front has authenticated by a token."""
        return origin._replace(name=name, digest=digest_of(self.tokens[name]))


@contextlib.asynccontextmanager
async def running(root: Path, **options) -> AsyncIterator[Served]:
    served = Served(root, **options)
    await served.server.start("127.0.0.1:0")
    found = discovery.read(root, "test")
    async with (
        grpc.aio.insecure_channel(found.address) as served.direct,
        grpc.aio.insecure_channel(found.local) as served.local,
        grpc.aio.insecure_channel(found.for_fronts()) as served.front,
    ):
        try:
            yield served
        finally:
            served.go_on.set()
            await served.server.stop()


def pull(channel, metadata=(), *, wait_ms: int = 0):
    request = pb.PullRequest(topic="orders", wait_ms=wait_ms).SerializeToString()
    return channel.unary_unary(METHODS["Pull"].path)(request, metadata=metadata, timeout=60)


async def refusal(call) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code().name, refused.value.details()


def lines(caplog) -> list[tuple[str, str, str, str]]:
    found = [one for one in caplog.records if one.name == "stratamq.audit"]
    caplog.clear()
    return [(one.who, one.method, one.reason, one.peer) for one in found]


@pytest.mark.parametrize("user", ["bob", "none", "revoked"])
async def test_a_delegated_caller_is_refused_with_the_error_and_the_line_of_a_direct_one(
    tmp_path, caplog, user
):
    async with running(tmp_path) as served:
        served.tokens["revoked"] = "revoked-token"
        token = Credentials(token=served.tokens.get(user, ""))
        with caplog.at_level(logging.INFO, logger="stratamq.audit"):
            direct = await refusal(pull(served.direct, token.metadata()))
            [line] = lines(caplog)
            origin = Caller(*split_address(line[3]))
            caller = origin if user == "none" else served.user(user, origin)
            assert await refusal(pull(served.front, [delegation(caller)])) == direct
            assert lines(caplog) == [line]
        assert served.reached == []
        assert direct[0] == ("PERMISSION_DENIED" if user == "bob" else "UNAUTHENTICATED")


async def test_a_handler_sees_the_caller_and_not_the_front(tmp_path):
    async with running(tmp_path) as served:
        await pull(served.front, [delegation(served.user("alice"))])
        await pull(served.front, [delegation(ELSEWHERE._replace(name="carol"))])
        alice, carol = served.reached
        assert (alice.name, alice.address, alice.encrypted) == ("alice", "10.1.2.3:5000", True)
        assert carol.name == "carol"  # by another proof than a token
        assert not alice.trusted and not carol.trusted


async def test_limits_count_a_user_directly_and_through_a_front_together(tmp_path):
    async with running(tmp_path, open_calls=2) as served:
        token = Credentials(token=served.tokens["alice"]).metadata()
        held = [
            pull(served.direct, token, wait_ms=1),
            pull(served.front, [delegation(served.user("alice"))], wait_ms=1),
        ]
        await served.until_reached(2)
        for channel, metadata in (
            (served.direct, token),
            (served.front, [delegation(served.user("alice"))]),
        ):
            assert (await refusal(pull(channel, metadata)))[0] == "RESOURCE_EXHAUSTED"
        await pull(served.front, [delegation(ELSEWHERE._replace(name="carol"))])
        served.go_on.set()
        await asyncio.gather(*held)


async def test_one_connection_of_a_front_carries_more_calls_than_one_client_may_have_open(tmp_path):
    async with running(tmp_path, open_calls=MAX_STREAMS) as served:
        callers = [served.user("alice")] * MAX_STREAMS + [ELSEWHERE._replace(name="carol")]
        held = [pull(served.front, [delegation(one)], wait_ms=1) for one in callers]
        await served.until_reached(MAX_STREAMS + 1)
        served.go_on.set()
        await asyncio.gather(*held)


@pytest.mark.parametrize("socket", ["direct", "local"])
@pytest.mark.parametrize("path", [METHODS["Pull"].path, HEALTH, "/no.Such/Method"])
async def test_no_other_socket_takes_a_caller_from_metadata(tmp_path, caplog, socket, path):
    """A front that is connected to the wrong one would call as `local`."""
    async with running(tmp_path) as served:
        metadata = [
            delegation(served.user("alice")),
            *Credentials(token=served.tokens["alice"]).metadata(),
        ]
        call = getattr(served, socket).unary_unary(path)
        with caplog.at_level(logging.INFO, logger="stratamq.audit"):
            code, why = await refusal(call(b"", metadata=metadata, timeout=60))
        assert (code, "for fronts only" in why) == ("UNAUTHENTICATED", True)
        [line] = lines(caplog)
        assert line[2] == why
        assert served.reached == []


def broken(**fields) -> list[tuple[str, bytes]]:
    good = {"user": "carol", "address": bytes([10, 1, 2, 3]), "port": 5_000, "encrypted": True}
    return [(DELEGATED, DelegatedCaller(**good | fields).SerializeToString())]


CAROL = broken()
REFUSED = {
    "missing": [],
    "missing beside a token": Credentials(token="a-token").metadata(),
    "two": CAROL + broken(user="alice"),
    "no message": [(DELEGATED, b"\xff\xff")],
    "empty": [(DELEGATED, b"")],
    "without an address": broken(address=b""),
    "half an address": broken(address=b"\x01\x02"),
    "impossible port": broken(port=1 << 16),
    "a name of all": broken(user="*"),
    "a team": broken(user="@shop"),
    "a name with a space": broken(user="carol x"),
    "half a digest": broken(token_sha256="ab"),
    "a digest of no user": broken(user="", token_sha256="a" * 64),
    "an unknown user": broken(user="mallory"),
    "an unknown token": broken(token_sha256="a" * 64),
    "no user": broken(user=""),
    "local": broken(user="local"),
    "a member": broken(user=MEMBER),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_a_front_that_names_no_caller_or_an_impossible_one_is_refused(tmp_path, caplog, kind):
    async with running(tmp_path) as served:
        with caplog.at_level(logging.INFO, logger="stratamq.audit"):
            code, _ = await refusal(pull(served.front, REFUSED[kind]))
        assert code == "UNAUTHENTICATED"
        [line] = lines(caplog)
        assert (line[0], line[3].startswith("127.")) == ("", False)
        assert served.reached == []
        await pull(served.front, CAROL)


async def test_a_token_proves_its_own_user_alone_and_not_in_clear(tmp_path):
    async with running(tmp_path) as served:
        digest = digest_of(served.tokens["bob"])
        anothers = ELSEWHERE._replace(name="alice", digest=digest)
        assert (await refusal(pull(served.front, [delegation(anothers)])))[1] == "unknown token"
        in_clear = served.user("alice")._replace(encrypted=False)
        code, why = await refusal(pull(served.front, [delegation(in_clear)]))
        assert (code, "plaintext" in why) == ("UNAUTHENTICATED", True)
        await pull(served.front, [delegation(in_clear._replace(host="127.0.0.1"))])


async def test_even_health_checks_of_a_front_name_their_caller(tmp_path):
    async with running(tmp_path) as served:
        check = served.front.unary_unary(HEALTH)
        assert (await refusal(check(b"", timeout=60)))[0] == "UNAUTHENTICATED"
        await check(b"", metadata=[delegation(ELSEWHERE)], timeout=60)


@pytest.mark.parametrize("proof", ["token", "another"])
async def test_an_open_stream_of_a_delegated_caller_ends_when_the_user_is_gone(tmp_path, proof):
    async with running(tmp_path) as served:
        alice = served.user("alice")
        if proof == "another":
            alice = alice._replace(digest="")
        request = pb.PullStreamRequest(queues=[pb.PullQueue(topic="orders")]).SerializeToString()
        stream = served.front.unary_stream(METHODS["PullStream"].path)(
            request, metadata=[delegation(alice)], timeout=60
        )
        assert await stream.read() == b""
        del served.permissions.users["alice"]
        served.permissions.rules = [grant_of("*", "consume", "topic:orders")]
        served.write()
        served.source.look()
        served.go_on.set()
        assert (await refusal(stream.read()))[0] == "UNAUTHENTICATED"


async def test_without_authentication_hosts_are_counted_through_a_front_too(tmp_path):
    async with running(tmp_path, authenticates=False, open_calls=1) as served:
        held = [
            pull(served.front, [delegation(one)], wait_ms=1)
            for one in (ELSEWHERE, Caller("127.0.0.1", 1), Caller("127.0.0.1", 2))
        ]
        await served.until_reached(3)
        same_host = ELSEWHERE._replace(port=5_001, name="alice")
        code, _ = await refusal(pull(served.front, [delegation(same_host)]))
        assert code == "RESOURCE_EXHAUSTED"
        assert (await refusal(pull(served.front)))[0] == "UNAUTHENTICATED"
        served.go_on.set()
        await asyncio.gather(*held)


async def test_the_socket_for_fronts_is_its_users_alone_and_goes_with_the_service(tmp_path):
    async with running(tmp_path):
        found = discovery.read(tmp_path, "test")
        path = Path(found.front.removeprefix("unix:"))
        assert found.front != found.local
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
    assert not path.exists()
