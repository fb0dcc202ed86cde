"""The standard health service, with watches that end when the process stops.

The servicer of grpcio-health-checking holds a lock while it writes to a watcher, forgets the other
watchers when one leaves, and never ends a watch, so that each stop would last its whole grace.
"""

import asyncio
from collections.abc import AsyncIterator

from grpc_health.v1 import health_pb2

from stratamq.errors import BusyError, NotFoundError

SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"]

MAX_WATCHES = 1_000
"""Needs a bound, because health checks need no authentication."""


class Health:
    """Serving states by service name. Used from the event loop only."""

    def __init__(self) -> None:
        self._serving: dict[str, bool] = {}
        self._changed = asyncio.Event()  # replaced at each change, so that a set one is history
        self._stopped = False
        self._watches = 0

    def set(self, service: str, serving: bool) -> None:
        """Has no effect after `stop`."""
        if not self._stopped and self._serving.get(service) is not serving:
            self._serving[service] = serving
            self._wake_watchers()

    def stop(self) -> None:
        """All services are NOT_SERVING for good; watchers receive it, and their calls end."""
        self._serving = dict.fromkeys(self._serving, False)
        self._stopped = True
        self._wake_watchers()

    async def Check(self, request, context) -> health_pb2.HealthCheckResponse:
        if request.service not in self._serving:
            raise NotFoundError(f"there is no service {request.service} here")
        return health_pb2.HealthCheckResponse(status=self._status(request.service))

    async def Watch(self, request, context) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        if self._watches >= MAX_WATCHES:
            raise BusyError(f"{MAX_WATCHES} clients already watch this service")
        self._watches += 1
        try:
            async for answer in self._answers(request.service):
                yield answer
        finally:
            self._watches -= 1

    async def _answers(self, service: str) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        sent = None
        while True:
            changed = self._changed
            status = self._status(service)
            if status != sent:
                sent = status
                yield health_pb2.HealthCheckResponse(status=status)
            elif self._stopped:
                return
            else:
                await changed.wait()

    def _status(self, service: str) -> int:
        if service not in self._serving:
            return health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        if self._serving[service]:
            return health_pb2.HealthCheckResponse.SERVING
        return health_pb2.HealthCheckResponse.NOT_SERVING

    def _wake_watchers(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
