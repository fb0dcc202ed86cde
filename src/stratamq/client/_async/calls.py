"""How operations are run: their time limits, and what is tried again."""

from collections.abc import Generator
from typing import Any, TypeVar

import grpc

from stratamq.client.client_settings import ClientSettings
from stratamq.client.connections import AsyncConnections
from stratamq.client.operations import AsyncRunOperation, Operation, given, merge_page
from stratamq.client.spans import recorded, unary
from stratamq.errors import StrataError, UnavailableError
from stratamq.rpc.explaining import explained
from stratamq.rpc.questions import LONGEST_ANSWER_S
from stratamq.rpc.rooms import COMMITLOG, DELIVERY, DISPATCHER
from stratamq.rpc.status import from_rpc_error, never_sent

R = TypeVar("R")
_WRITTEN = (COMMITLOG, DISPATCHER, DELIVERY)
"""What a slave refuses there, its master takes."""


class AsyncCalls:
    """Runs operations over a client's connections. Safe ones are tried again for `retry_timeout_s`
    while their service does not answer, others only if they were never sent, or were refused by a
    broker that is no master."""

    def __init__(self, connections: AsyncConnections, settings: ClientSettings) -> None:
        self._connections = connections
        self._settings = settings
        self._spans = settings.hooks.spans

    async def run(self, operation: Operation[R]) -> R:
        timeout_s = self._settings.timeout_s + operation.wait_s
        return await self._run(operation, timeout_s, self._settings.retry_timeout_s)

    async def run_soon(self, operation: Operation[R]) -> R:
        """Once, for those who would rather go on without an answer."""
        return await self._run(operation, min(self._settings.timeout_s, LONGEST_ANSWER_S), 0.0)

    async def _run(self, operation: Operation[R], timeout_s: float, retry_timeout_s: float) -> R:
        if self._spans is None:
            return await self._attempts(operation, timeout_s, retry_timeout_s)
        called = unary(operation.method, operation.request)
        with recorded(self._spans, called) as finished:
            result = await self._attempts(operation, timeout_s, retry_timeout_s)
            finished.error = called.error(result)
        return result

    async def _attempts(
        self, operation: Operation[R], timeout_s: float, retry_timeout_s: float
    ) -> R:
        backoff = self._settings.backoff(retry_timeout_s)
        moved_once = False
        while True:
            error: StrataError | None
            result: R | None = None
            try:
                call = await self._connections.callable(operation.method)
                answer = await call(operation.request, timeout=timeout_s)
                while (request := operation.next_page(answer)) is not None:
                    merge_page(answer, await call(request, timeout=timeout_s))
                result = operation.result(answer)
                error = operation.refusal(result)
                if error is None:
                    return result
            except grpc.RpcError as failure:
                error = from_rpc_error(failure)
            except UnavailableError as failure:
                error = failure
            moved, again = await self._look_elsewhere(operation, error)
            if again and moved and not moved_once:
                moved_once = True
                continue
            delay_s = backoff.next_delay_s() if again else None
            if delay_s is None or await self._connections.closed.wait(delay_s):
                return given(result, self._in_words(operation, error))

    def _in_words(self, operation: Operation[Any], error: StrataError | None) -> StrataError | None:
        """gRPC's own text of a connection that could not be made is not for people."""
        address = self._connections.address(operation.method.room)
        if error is None or address is None or not never_sent(error):
            return error
        found = explained(address, error)
        found.fields.update(error.fields, never_sent=True)
        return found

    async def _look_elsewhere(
        self, operation: Operation[Any], error: StrataError | None
    ) -> tuple[bool, bool]:
        """After an error: whether the service is found elsewhere, and whether the operation may be
        tried again."""
        if self._connections.closed.is_set():
            return False, False
        leads = operation.method.room in _WRITTEN and self._connections.leads(error)
        if leads:
            return await self._connections.follow(error), True  # it was refused: nothing was done
        if not isinstance(error, UnavailableError):
            return False, False
        moved = await self._connections.renew(operation.method.room)
        return moved, operation.safe or never_sent(error)


async def run_plan(run: AsyncRunOperation, plan: Generator[Operation[Any], Any, R]) -> R:
    """Run a plan's operations one after the other."""
    try:
        operation = next(plan)
        while True:
            try:
                result = await run(operation)
            except StrataError as error:
                operation = plan.throw(error)
            else:
                operation = plan.send(result)
    except StopIteration as end:
        return end.value
