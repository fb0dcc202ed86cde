"""Every error through real channels, from a synchronous and an asyncio client."""

import asyncio
import errno
import json
import logging

import grpc
import pytest

from stratamq import errors
from stratamq.rpc import status
from stratamq.rpc.request_ids import ERROR_KEY
from stratamq.rpc.status import from_rpc_error, to_status
from stratamq.service.server import Server
from tests.support.calls import with_status

SERVICE = "test.Errors"

EVERY_ERROR = [
    (errors.InvalidRequestError("topic is longer than 127 bytes"), "INVALID_ARGUMENT"),
    (errors.InvalidRequestError("bad frame", frame=7, topic="T"), "INVALID_ARGUMENT"),
    (errors.ExpiredReceiptError("offset 4 is finished already"), "INVALID_ARGUMENT"),
    (errors.ForkedClientError("made before a fork"), "INVALID_ARGUMENT"),
    (errors.DeliveryTimeError("in 400 days"), "INVALID_ARGUMENT"),
    (errors.DecidedTransactionError("it was rolled back"), "FAILED_PRECONDITION"),
    (errors.NotFoundError("no such queue"), "NOT_FOUND"),
    (errors.OffsetOutOfRangeError("too far", 10, 2**62), "OUT_OF_RANGE"),
    (errors.NotWritableError("a slave takes no appends", "replica"), "FAILED_PRECONDITION"),
    (errors.NotPermittedError("topic t has no read permission"), "PERMISSION_DENIED"),
    (errors.UnauthenticatedError("unknown token"), "UNAUTHENTICATED"),
    (errors.BusyError("the disk is full", 250), "RESOURCE_EXHAUSTED"),
    (errors.UnavailableError("recovering"), "UNAVAILABLE"),
    (errors.CorruptionError("bad checksum", "00000000000000000000", 42), "DATA_LOSS"),
    (errors.CorruptRecordError("no magic", 99, "magic"), "DATA_LOSS"),
    (errors.LostMessagesError("queue 0 of t", 200, 374), "DATA_LOSS"),
    (errors.ConfigurationError(["a must be b", "c; d"]), "FAILED_PRECONDITION"),
    (errors.StoreRefusedError("written by a newer version"), "FAILED_PRECONDITION"),
    (errors.NotFoundError("Grüße, 消息\nline two % 100"), "NOT_FOUND"),
    (errors.NotFoundError("with fields", list=[1, "ü"], none=None, truth=True), "NOT_FOUND"),
]
NAMES = [f"{type(error).__name__}-{number}" for number, (error, _) in enumerate(EVERY_ERROR)]
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class Raiser:
    """Handlers of every kind that raise `error`, streams after one response; None: no answer."""

    error: BaseException | None

    async def unary(self, request, context):
        if self.error is None:
            await asyncio.Event().wait()
        raise self.error

    async def stream(self, request, context):
        yield b"first"
        raise self.error

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "unary_unary": grpc.unary_unary_rpc_method_handler(self.unary),
                "unary_stream": grpc.unary_stream_rpc_method_handler(self.stream),
                "stream_unary": grpc.stream_unary_rpc_method_handler(self.unary),
                "stream_stream": grpc.stream_stream_rpc_method_handler(self.stream),
            },
        )


@pytest.fixture(scope="module")
def raiser(run):
    raiser = Raiser()

    async def start() -> Server:
        server = Server("test", stop_grace_ms=0)
        server.add_generic(raiser.handler())
        await server.start("127.0.0.1:0")
        return server

    server = run(start())
    raiser.address = server.address
    yield raiser
    run(server.stop())


def call_sync(address: str, kind: str, request: bytes = b"", timeout: float = 20) -> grpc.RpcError:
    with grpc.insecure_channel(address) as channel:
        shape = "_".join(kind.split("_")[:2])
        method = getattr(channel, shape)(f"/{SERVICE}/{kind}")
        with pytest.raises(grpc.RpcError) as raised:
            response = method(
                request if shape.startswith("unary") else iter([request]), timeout=timeout
            )
            if shape.endswith("stream"):
                list(response)
    return raised.value


async def call_asyncio(address: str, kind: str) -> grpc.RpcError:
    async with grpc.aio.insecure_channel(address) as channel:
        shape = "_".join(kind.split("_")[:2])
        method = getattr(channel, shape)(f"/{SERVICE}/{kind}")

        async def ask() -> None:
            call = method(b"" if shape.startswith("unary") else iter([b""]), timeout=60)
            if shape.endswith("stream"):
                async for _ in call:
                    pass
            else:
                await call

        with pytest.raises(grpc.RpcError) as raised:
            await with_status(ask)
    return raised.value


def assert_same(rebuilt: errors.StrataError, error: errors.StrataError) -> None:
    assert type(rebuilt) is type(error)
    assert rebuilt.message == error.message
    assert rebuilt.fields == error.fields
    received = {"request_id": rebuilt.request_id} if rebuilt.request_id else {}
    assert vars(rebuilt) == vars(error) | received


@pytest.mark.parametrize(("error", "code"), EVERY_ERROR, ids=NAMES)
def test_every_error_crosses_a_channel_unchanged(raiser, run, error, code):
    raiser.error = error
    for kind in ("unary_unary", "stream_stream"):
        received = call_sync(raiser.address, kind)
        assert received.code().name == code
        assert_same(from_rpc_error(received), error)
        received = run(call_asyncio(raiser.address, kind))
        assert received.code().name == code
        assert_same(from_rpc_error(received), error)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_call_carries_the_error(raiser, run, kind):
    raiser.error = errors.BusyError("come back", 7)
    assert_same(from_rpc_error(call_sync(raiser.address, kind)), raiser.error)
    assert_same(from_rpc_error(run(call_asyncio(raiser.address, kind))), raiser.error)


def test_every_class_of_the_tree_is_in_the_table():
    def subclasses(cls: type) -> set[type]:
        return {cls}.union(*(subclasses(child) for child in cls.__subclasses__()))

    ours = {cls for cls in subclasses(errors.StrataError) if cls.__module__ == "stratamq.errors"}
    assert ours - {errors.StrataError} == {row.error for row in status._TABLE}
    assert {type(error) for error, _ in EVERY_ERROR} == ours - {errors.StrataError}


def test_a_subclass_travels_as_its_nearest_ancestor_of_the_table():
    class TopicTooLongError(errors.InvalidRequestError):
        pass

    code, message, metadata = to_status(TopicTooLongError("long", limit=127))
    assert (code, message) == (grpc.StatusCode.INVALID_ARGUMENT, "long")
    assert dict(metadata)[status.NAME_KEY] == "INVALID_REQUEST"


def test_a_bug_is_logged_with_traceback_and_its_message_withheld(raiser, caplog):
    raiser.error = ValueError("the password is swordfish")
    received = call_sync(raiser.address, "unary_unary")
    assert received.code() is grpc.StatusCode.INTERNAL
    assert "swordfish" not in received.details()
    [record] = [record for record in caplog.records if record.name == status.__name__]
    assert record.exc_info[1] is raiser.error
    [(_, request_id)] = [one for one in received.trailing_metadata() if one[0] == ERROR_KEY]
    assert request_id in received.details()
    assert type(from_rpc_error(received)) is errors.StrataError


def test_damage_is_logged_as_an_error(caplog):
    to_status(errors.CorruptionError("bad", "file", 3))
    [record] = caplog.records
    assert (record.levelno, record.field_position) == (logging.ERROR, 3)


def test_a_passed_deadline_has_its_own_status_but_a_disk_timeout_is_a_bug():
    code, _, _ = to_status(TimeoutError())
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    code, _, _ = to_status(OSError(errno.ETIMEDOUT, "disk"))
    assert code is grpc.StatusCode.INTERNAL


def test_a_clients_deadline_becomes_unavailable_with_its_status(raiser):
    raiser.error = None
    error = from_rpc_error(call_sync(raiser.address, "unary_unary", timeout=0.05))
    assert type(error) is errors.UnavailableError
    assert error.fields == {"status": "DEADLINE_EXCEEDED"}


def test_a_method_that_is_not_there_is_an_invalid_request(raiser):
    received = call_sync(raiser.address, "unary_unary_absent")
    assert received.code() is grpc.StatusCode.UNIMPLEMENTED
    assert type(from_rpc_error(received)) is errors.InvalidRequestError


def test_a_message_over_grpcs_own_limit_is_invalid_not_busy(raiser):
    received = call_sync(raiser.address, "unary_unary", request=bytes(9 << 20))
    assert received.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert type(from_rpc_error(received)) is errors.InvalidRequestError


def test_a_service_that_is_not_there_is_unavailable():
    received = call_sync("127.0.0.1:1", "unary_unary")
    assert type(from_rpc_error(received)) is errors.UnavailableError


def test_long_messages_and_fields_are_cut_to_what_grpc_carries(raiser):
    raiser.error = errors.NotFoundError("消" * 5000, small=1, large="x" * 10_000)
    error = from_rpc_error(call_sync(raiser.address, "unary_unary"))
    assert type(error) is errors.NotFoundError
    assert error.message.startswith("消消消")
    assert error.fields == {"small": 1, "truncated": True}
    raiser.error = errors.NotFoundError("x", **{f"f{n}": "y" * 50 for n in range(2000)})
    error = from_rpc_error(call_sync(raiser.address, "unary_unary"))
    assert error.fields["truncated"] is True


def test_text_that_is_not_unicode_still_crosses(raiser):
    raiser.error = errors.NotFoundError("file \udcff\0 gone", name="\udcff", raw=b"\xff")
    error = from_rpc_error(call_sync(raiser.address, "unary_unary"))
    assert type(error) is errors.NotFoundError
    assert "gone" in error.message
    assert error.fields["name"] == "\udcff"


def test_an_exception_group_has_the_status_of_its_first_bug_or_its_first_error():
    busy, missing = errors.BusyError("busy"), errors.NotFoundError("missing")
    code, _, _ = to_status(ExceptionGroup("tasks", [busy, ExceptionGroup("inner", [missing])]))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    code, _, _ = to_status(ExceptionGroup("tasks", [busy, ValueError()]))
    assert code is grpc.StatusCode.INTERNAL


class Received(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, name: str, fields: str) -> None:
        self.code = lambda: code
        self.details = lambda: "details"
        self.trailing_metadata = lambda: ((status.NAME_KEY, name), (status.FIELDS_KEY, fields))


@pytest.mark.parametrize("row", status._TABLE, ids=lambda row: row.name)
@pytest.mark.parametrize(
    "fields", ["", "[]", "{", "null", "[" * 5000, json.dumps({"position": "x", "faults": 3})]
)
def test_malformed_fields_never_hide_the_error(row, fields):
    error = from_rpc_error(Received(row.code, row.name, fields))
    assert type(error) is row.error
    assert error.message == "details"


@pytest.mark.parametrize("code", [c for c in grpc.StatusCode if c is not grpc.StatusCode.OK])
def test_every_status_of_other_servers_becomes_an_error(code):
    error = from_rpc_error(Received(code, "SOMETHING_NEW", "{}"))
    assert isinstance(error, errors.StrataError)
    assert error.fields["status"] == code.name
