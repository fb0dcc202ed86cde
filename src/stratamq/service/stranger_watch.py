"""Looks after the strangers of a listener, ten times a second: lets hosts in again, and, while
gRPC's threads are at work, looks at what its connections have sent."""

import asyncio
import logging
import time
from collections.abc import Mapping

from stratamq.service import metrics
from stratamq.service.access import AccessControl
from stratamq.service.connections import Closing, KeepingOut, Received
from stratamq.service.strangers import Strangers

log = logging.getLogger(__name__)

LOOK_S = 0.1
AT_WORK = 0.05
"""Of a core, by all threads but the event loop's."""
MOST_TIME = 0.02
"""Of the event loop's, for looks."""

KEPT_OUT = metrics.gauge(
    "service_hosts_kept_out",
    "Hosts of which few new connections are let in, for what was done without an identity.",
    asks="Is somebody attacking, or kept out?",
)


class StrangerWatch:
    """From its making until `close`, on the event loop."""

    def __init__(self, access: AccessControl, port: int, keep_out_ms: int) -> None:
        """`port`: something listens there by now."""
        self._access = access
        self._drop = KeepingOut(port)
        self._kept_out: dict[str, int] = {}
        self._strangers = Strangers(
            Closing(port), keep_out=self._keep_out, keep_out_ns=keep_out_ms * 1_000_000
        )
        self._received = Received(port)
        access.on_stranger = self._strangers.refused
        access.hold_stranger = self._strangers.hold
        access.is_closed = self._strangers.is_closed
        access.on_known = self._strangers.unheard.known
        self._is_looking = self._is_blind = False
        self._pause_until_ns = 0
        self._others_ns, self._looked_ns = _others_ns(), time.monotonic_ns()
        self._wait()

    def close(self) -> None:
        self._timer.cancel()

    def _keep_out(self, hosts: Mapping[str, int]) -> None:
        if not self._drop(hosts):
            hosts = {}  # it has said so
        for host, one_in in hosts.items():
            if one_in > self._kept_out.get(host, 1):
                self._access.kept_out(host, one_in)
        self._kept_out = dict(hosts)
        KEPT_OUT.set(len(hosts))

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._wait()
        self._strangers.let_in()
        if time.monotonic_ns() < self._pause_until_ns:
            return
        began_ns = time.thread_time_ns()
        if self._is_looking or self._is_at_work() or self._strangers.unheard.wants_look:
            self._go_on()
        cost_ns = time.thread_time_ns() - began_ns
        self._pause_until_ns = time.monotonic_ns() + int(cost_ns / MOST_TIME)

    def _go_on(self) -> None:
        if not self._is_looking:
            self._strangers.unheard.begin()
        try:
            if not self._is_looking:
                self._received.begin()
            received = self._received.go_on()
        except OSError as error:
            self._is_looking = False
            if not self._is_blind:
                log.warning("connections are not looked at", extra={"reason": str(error)})
            self._is_blind = True
            return
        self._is_looking, self._is_blind = received is None, False
        if received is None:
            return
        for peer in self._strangers.look(received):
            self._access.closed(peer, "it sends, and calls nothing")

    def _is_at_work(self) -> bool:
        """Whether gRPC's threads are."""
        others_ns, now_ns = _others_ns(), time.monotonic_ns()
        spent, passed = others_ns - self._others_ns, now_ns - self._looked_ns
        self._others_ns, self._looked_ns = others_ns, now_ns
        return spent > AT_WORK * passed


def _others_ns() -> int:
    return time.process_time_ns() - time.thread_time_ns()
