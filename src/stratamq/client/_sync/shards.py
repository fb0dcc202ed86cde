# Generated from _async/shards.py by scripts/gen_sync_client.py (`make client`).
"""The brokers behind several addresses, by name, each with a client of its own."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from stratamq.client import operations
from stratamq.client.connections import Connections
from stratamq.client.primitives import Guard, Lock, Ongoing
from stratamq.client.scaling import drain_of_topics
from stratamq.client.shard_routes import ShardRoutes, of_broker
from stratamq.client.values import Role, Topic
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError, UnavailableError
from stratamq.files.port import Clock, Random
from stratamq.formats.topics import DRAIN_TOPIC, Drain
from stratamq.rpc.backoff import Backoff
from stratamq.rpc.endpoints import Endpoints

log = logging.getLogger(__name__)

LOOK_AGAIN_NS = 30_000_000_000
"""Host names are resolved again, and addresses of which no name is known are asked again, after so
long."""


class Shards:
    """Of one client. A name that was seen stays, whether its brokers answer or not."""

    def __init__(
        self,
        endpoints: Endpoints,
        connections: Connections,
        make_client: Callable[[Endpoints], Any],
        retry_timeout_s: float,
        clock: Clock,
        random: Random,
    ) -> None:
        self._endpoints = endpoints
        self._connections = connections
        self._make_client = make_client
        self._retry_timeout_s = retry_timeout_s
        self._clock = clock
        self._random = random
        self._looking = Lock()
        self._looked_ns = 0
        self._names: dict[str, list[str]] = {}
        """The addresses of each."""
        self._silent: dict[str, StrataError] = {}
        self._clients: dict[str, Any] = {}
        self._places: dict[str, Endpoints] = {}
        """Where each client looks."""
        self._guard = Guard()
        self._beside = Ongoing()
        """A look for which nobody waits."""

    def clients(self, longest_age_ns: int = LOOK_AGAIN_NS) -> dict[str, Any]:
        """By broker name; empty when every address, and none is a host name, has given the same
        name, and while the only one gives none. Raises why no name is known, after the client's
        `retry_timeout_s`. Names of hosts are resolved again, and addresses that gave none are
        asked again, when the last answer is older than `longest_age_ns`."""
        if self._names and not self._is_due(longest_age_ns):
            return self._clients
        with self._looking:
            if not self._names and self._endpoints.named:
                self._look_at_first()
            elif not self._names:
                self._look_with_retries()
            elif self._is_due(longest_age_ns):
                # When nothing answers, what asks a broker gets the error.
                with contextlib.suppress(UnavailableError):
                    self._look()
        return self._clients

    def clients_now(self) -> dict[str, Any]:
        """As `clients`, for what is not to wait for a look once a name is known: it is made beside,
        and seen by who asks later."""
        if not self._names:
            return self.clients()
        if self._is_due(LOOK_AGAIN_NS):
            with self._guard:
                due = self._is_due(LOOK_AGAIN_NS)
                self._looked_ns = self._clock.monotonic_ns()
            if due:
                self._beside.ended()  # the one before
                self._beside.begin(self._look_beside)
        return self._clients

    def _look_beside(self) -> None:
        # What asks a broker gets the error; a client that was closed asks none.
        with contextlib.suppress(UnavailableError, InvalidRequestError):
            self._look_in_turn()

    def _look_in_turn(self) -> None:
        with self._looking:
            self._look()

    @property
    def changing(self) -> bool:
        """Other names may come: hosts are to be resolved again."""
        return self._endpoints.named

    def only(self) -> bool:
        """One name is known, and no look is due."""
        return len(self._clients) == 1 and not self._is_due(LOOK_AGAIN_NS)

    def several(self) -> bool:
        """More than one name is known."""
        return len(self._names) > 1

    def _is_due(self, age_ns: int) -> bool:
        changing = bool(self._silent) or self._endpoints.named
        return changing and self._clock.monotonic_ns() - self._looked_ns > age_ns

    def read(self, ask: Callable[[Any], Any], *, whole: bool = False) -> list[tuple[str, Any]]:
        """What each broker answers, by name. Of one that is away a warning is logged; raises its
        error when no other one answers, or the answer is to be `whole`. NotFoundError when all
        that answer raise it."""
        found: list[tuple[str, Any]] = []
        away: list[StrataError] = []
        missing: NotFoundError | None = None
        for name, client in (self.clients()).items():
            try:
                found.append((name, ask(client)))
            except UnavailableError as error:
                away.append(of_broker(error, name))
            except NotFoundError as error:
                missing = error
        if away and (whole or not (found or missing)):
            raise away[0]
        if not found and missing is not None:
            raise missing
        for error in away:
            log.warning("left out: %s", error.message)
        return found

    def routed(self, routes: ShardRoutes, topic: str, now_ns: int) -> dict[str, Any]:
        """The brokers, once they were asked about the topic where that is due."""
        brokers = self.clients_now()
        asked = routes.to_ask(topic, brokers, now_ns)
        found: dict[str, Topic | None] = {}
        for name in asked:
            try:
                some = brokers[name]._run_soon(operations.topics(topic))
                found[name] = some[0] if some else None
                if not (some and some[0].permission & 2):  # for itself, or of all its topics?
                    mark = brokers[name]._run_soon(operations.topics(DRAIN_TOPIC))
                    is_open = drain_of_topics(mark) is Drain.OPEN
                    (routes.drained.discard if is_open else routes.drained.add)(name)
                else:
                    routes.drained.discard(name)
            except UnavailableError as error:
                self.pass_over(routes, name, of_broker(error, name))
        if asked or not routes.knows(topic):
            routes.learn(topic, found, now_ns)
        return brokers

    def pass_over(self, routes: ShardRoutes, name: str, error: StrataError) -> None:
        """It took nothing, and gets nothing for a while."""
        if routes.away(name, self._clock.monotonic_ns()):
            log.warning("nothing is sent there for now: %s", error.message)

    def change(self, names: list[str], do: Callable[[Any, str], Any]) -> list[Any]:
        """Do it at each of these brokers. Nothing is done when one of them has no master now; an
        error later names those where it is done, and those where it is not."""
        clients = self.clients()
        for name in names:
            try:
                state = clients[name].log_state()
            except UnavailableError as error:
                raise UnavailableError(f"nothing was changed: {of_broker(error, name)}") from error
            if state.role is Role.SLAVE:
                raise UnavailableError(
                    f"nothing was changed: broker {name} has no master: {state.not_writable_reason}"
                )
        done: list[Any] = []
        for number, name in enumerate(names):
            try:
                done.append(do(clients[name], name))
            except StrataError as error:
                of_broker(error, name)
                error.message += f"; done at {', '.join(names[:number]) or 'none'}, not at " + (
                    ", ".join(names[number:])
                )
                raise
        return done

    def close(self) -> None:
        """After the connections: a look that goes on beside ends within seconds, and makes no
        further client."""
        self._beside.ended()
        for client in self._clients.values():
            client.close()

    def _look_at_first(self) -> None:
        """Of host names. What is behind a single address is asked as it is, when it gives no name:
        what asks waits, or has the error."""
        try:
            self._look()
        except UnavailableError:
            if not self._endpoints.single:
                self._look_with_retries()

    def _look_with_retries(self) -> None:
        backoff = Backoff(self._retry_timeout_s, self._clock, self._random)
        while True:
            try:
                return self._look()
            except UnavailableError:
                delay_s = backoff.next_delay_s()
                if delay_s is None or self._connections.closed.wait(delay_s):
                    raise

    def _look(self) -> None:
        self._looked_ns = self._clock.monotonic_ns()
        found = self._connections.ask(Endpoints.survey)
        there = set(self._endpoints.seeds())
        for name, addresses in found.names.items():
            known = [one for one in self._names.get(name, []) if one in there]
            self._names[name] = known + [one for one in addresses if one not in known]
        named = {one for addresses in self._names.values() for one in addresses}
        before, self._silent = (
            self._silent,
            {address: error for address, error in found.silent.items() if address not in named},
        )
        for address, error in self._silent.items():
            if address not in before:
                log.warning(
                    "if it is of another name than %s, a broker is left out: %s",
                    ", ".join(sorted(self._names)),
                    error.message,
                )
        if len(self._names) == 1:
            (name,) = self._names
            self._endpoints.choose(name, self._names[name])
            if not (self._silent or self._clients or self._endpoints.named):
                return
        else:
            self._endpoints.choose("", ())
        for name, addresses in sorted(self._names.items()):
            # Of host names all addresses are asked when a shard's own have no master.
            silent = [] if self._endpoints.named else list(self._silent)
            if name in self._places:
                self._places[name].move(addresses, silent)
            else:
                self._places[name] = self._endpoints.of_broker(name, addresses, silent)
                made = self._make_client(self._places[name])
                self._clients = {**self._clients, name: made}  # others go through the old one
