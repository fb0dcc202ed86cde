"""The sends of one connection that go to the log undecoded. One task for each batch of the append
stream writes the answers to all its requests at once; requests have no task of their own."""

from collections.abc import Coroutine
from typing import Any, NamedTuple, Protocol

from stratamq.client._async.sending import AsyncSharedStream
from stratamq.client.units import Batch, BatchRun
from stratamq.errors import InvalidRequestError, StrataError
from stratamq.rpc.request_ids import Request
from stratamq.service.access import AccessControl
from stratamq.service.caller import Caller
from stratamq.service.entrance import Call, Entrance
from stratamq.service.front import FrontClient
from stratamq_gateway.codes import ResponseCode
from stratamq_gateway.frames import Answer, Command, encode_answer
from stratamq_gateway.metrics import requests_of
from stratamq_gateway.rows import encode_sent, rows_of
from stratamq_gateway.sending import Send, sent_answer


class AnsweringConnection(Protocol):
    """The connection, as those need it who answer requests without a task for each."""

    def caller(self, access: AccessControl | None, command: Command) -> Caller: ...

    def known_client(self, caller: Caller) -> FrontClient | None: ...

    def failure(
        self, command: Command, method: str, error: Exception, request: Request
    ) -> Answer: ...

    def write(self, pieces: list[bytes | memoryview]) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None: ...


class _Waiting(NamedTuple):
    command: Command
    call: Call
    method: str
    region: str
    key: str
    run: BatchRun
    first: int
    count: int


class RowSends:
    def __init__(self, connection: AnsweringConnection) -> None:
        self._connection = connection
        self._waiting: dict[Batch, list[_Waiting]] = {}
        self._count = 0

    def __len__(self) -> int:
        """Requests that are not answered."""
        return self._count

    def take(self, command: Command, entrance: Entrance, handler: object) -> bool:
        """False, and nothing is done: the request is to be decoded."""
        if not isinstance(handler, Send) or handler.repeats is not None:
            return False
        found = rows_of(command)
        if found is None:
            return False
        request = Request()
        try:
            caller = self._connection.caller(entrance.access, command)
            client = self._connection.known_client(caller)
            if client is None or not client.rows.takes_rows:
                return False
            call = entrance.enter(lambda: caller, request)
            try:
                call.require_topics((found.topic,))
                call.require_room()
                place = client.rows.add_rows(*found[:4])
            except BaseException as error:
                call.end(error)
                raise
        except Exception as error:  # noqa: BLE001 - it is logged, or is the client's
            requests_of(entrance.method).inc()
            self._connection.write(self._refusal(command, entrance.method, error, request))
            return True
        if place is None:
            call.end()
            return False
        requests_of(entrance.method).inc()
        batch, run, first = place
        waiting = self._waiting.get(batch)
        if waiting is None:
            waiting = self._waiting[batch] = []
            self._connection.spawn(self._answer(client.rows, batch, waiting))
        count = len(found.rows)
        told = (command, call, entrance.method, handler.region, found.key)
        waiting.append(_Waiting(*told, run, first, count))
        self._count += 1
        return True

    async def _answer(
        self, stream: AsyncSharedStream, batch: Batch, waiting: list[_Waiting]
    ) -> None:
        failure: StrataError | None = None
        try:
            try:
                await stream.settled(batch)
            except StrataError as error:
                failure = error
        finally:  # the connection may be lost, and this be cancelled
            del self._waiting[batch]
            self._count -= len(waiting)
            pieces: list[bytes | memoryview] = []
            for one in waiting:
                pieces += self._answer_of(one, batch, failure)
        self._connection.write(pieces)

    def _answer_of(
        self, one: _Waiting, batch: Batch, failure: StrataError | None
    ) -> list[bytes | memoryview]:
        error: Exception | None = failure
        if error is None and batch.settled:
            try:
                pieces = _sent(one, batch)
                one.call.end()
                return [] if one.command.is_oneway else pieces
            except Exception as failed:  # noqa: BLE001 - it is logged, or is the client's
                error = failed
        one.call.end(error)
        if error is None:
            return []
        return self._refusal(one.command, one.method, error, one.call.request)

    def _refusal(
        self, command: Command, method: str, error: Exception, request: Request
    ) -> list[bytes | memoryview]:
        answer = self._connection.failure(command, method, error, request)
        if isinstance(error, InvalidRequestError):
            answer = Answer(ResponseCode.MESSAGE_ILLEGAL, remark=str(error))
        return [] if command.is_oneway else encode_answer(answer, command.opaque)


def _sent(one: _Waiting, batch: Batch) -> list[bytes | memoryview]:
    """The answer. StrataError: why it was not stored."""
    stored = batch.places_of(one.run, one.first, one.count)
    if stored is not None:
        return [encode_sent(stored, one.key, one.command.opaque, one.region)]
    wanted = range(one.first, one.first + one.count)
    results = [batch.result_of(one.run, at, with_id=True).check() for at in wanted]
    return encode_answer(sent_answer(results, one.region), one.command.opaque)
