"""How operations are run: their time limits, and what is tried again."""

from collections.abc import Generator
from typing import Any, TypeVar

import grpc

from stratamq.client.connections import AsyncConnections
from stratamq.client.operations import AsyncRunOperation, Operation, merge_page
from stratamq.errors import StrataError, UnavailableError
from stratamq.files.port import Clock, Random
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.status import from_rpc_error

R = TypeVar("R")


class AsyncCalls:
    """Runs operations over a client's connections. Safe ones are tried again for `patience_s`
    while their service does not answer, others never."""

    def __init__(
        self,
        connections: AsyncConnections,
        timeout_s: float,
        patience_s: float,
        clock: Clock,
        random: Random,
    ) -> None:
        self._connections = connections
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._clock = clock
        self._random = random

    async def run(self, operation: Operation[R]) -> R:
        backoff = Backoff(self._patience_s, self._clock, self._random)
        timeout_s = self._timeout_s + operation.wait_s
        moved_once = False
        while True:
            try:
                call = await self._connections.callable(operation.method)
                answer = await call(operation.request, timeout=timeout_s)
                while (request := operation.next_page(answer)) is not None:
                    merge_page(answer, await call(request, timeout=timeout_s))
                return operation.result(answer)
            except grpc.RpcError as failure:
                error = from_rpc_error(failure)
            except UnavailableError as failure:
                error = failure
            if not isinstance(error, UnavailableError) or self._connections.closed.is_set():
                raise error
            moved = await self._connections.renew(operation.method.room)
            if not operation.safe:
                raise error
            if moved and not moved_once:
                moved_once = True
                continue
            delay_s = backoff.next_delay_s()
            if delay_s is None or await self._connections.closed.wait(delay_s):
                raise error


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
