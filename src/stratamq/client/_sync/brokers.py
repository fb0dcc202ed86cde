# Generated from _async/brokers.py by scripts/gen_sync_client.py (`make client`).
"""The brokers of a client, n >= 1: one, or one of each name behind several addresses; and which of
them a message goes to."""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from stratamq.client import operations
from stratamq.client._sync.calls import Calls
from stratamq.client._sync.sending import Sending
from stratamq.client.append_messages import is_refused
from stratamq.client.client_settings import ClientSettings
from stratamq.client.connections import Connections
from stratamq.client.primitives import Guard, Lock, Ongoing
from stratamq.client.scaling import drain_of_topics
from stratamq.client.shard_routes import (
    ShardRoutes,
    of_broker,
    ordered_place,
    took_nothing,
)
from stratamq.client.values import SendResult, Topic
from stratamq.errors import (
    InvalidRequestError,
    NotFoundError,
    StrataError,
    UnavailableError,
)
from stratamq.formats.log_state import Role
from stratamq.formats.topics import DRAIN_TOPIC, PERMISSION_WRITE, Drain
from stratamq.rpc.endpoints import Endpoints

R = TypeVar("R")
log = logging.getLogger(__name__)

LOOK_AGAIN_NS = 30_000_000_000
"""Host names are resolved again, and addresses of which no name is known are asked again, after so
long."""


class Broker:
    """One broker, or one cluster of brokers of one name: its connections, its calls, and the
    messages that are sent one by one. `name` "": its client knows no other one."""

    def __init__(
        self,
        name: str,
        endpoints: Endpoints,
        settings: ClientSettings,
        elsewhere: Callable[[], bool],
    ) -> None:
        """`elsewhere`: see `Sending`."""
        self.name = name
        self.endpoints = endpoints
        self.connections = Connections(endpoints, settings.timeout_s)
        self.connections.waits = settings.retry_timeout_s > 0
        calls = Calls(self.connections, settings)
        self.run, self.run_soon = calls.run, calls.run_soon
        self.sending = Sending(calls.run, self.connections, settings, elsewhere)

    def named(self, found: Sequence[R]) -> Sequence[R]:
        """These values with the broker's name."""
        return [replace(one, broker=self.name) for one in found] if self.name else found  # type: ignore[type-var]

    def close(self) -> None:
        self.sending.close()
        self.connections.close()


class Brokers:
    """All brokers of one client. A name that was seen stays, whether its brokers answer or not.

    `whole` is all addresses as one broker: what is of one broker goes there, and raises
    InvalidRequestError once they are found to have several names.
    """

    def __init__(self, where: Endpoints | Broker, settings: ClientSettings) -> None:
        """`where`: a broker that another client has, too."""
        self.settings = settings
        if isinstance(where, Broker):
            self.whole = where
        else:
            self.whole = Broker("", where, settings, self.several)
        self._endpoints = self.whole.endpoints
        self.fixed = not self._endpoints.mixed
        """Which brokers there are is known, and stays."""
        self._all: Mapping[str, Broker] = {self.whole.name: self.whole}
        self._looking = Lock()
        self._looked_ns = 0
        self._names: dict[str, list[str]] = {}
        """The addresses of each."""
        self._silent: dict[str, StrataError] = {}
        self._guard = Guard()
        self._beside = Ongoing()
        """A look for names that no caller waits for."""

    def all(self, longest_age_ns: int = LOOK_AGAIN_NS) -> Mapping[str, Broker]:
        """By name, "" when all addresses, none of them a host name, have given the same one, or the
        only one gives none. Raises why no name is known, after the client's `retry_timeout_s`.
        Host names are resolved again, and addresses that gave no name are asked again, when the
        last answer is older than `longest_age_ns`."""
        if self.fixed or (self._names and not self._is_due(longest_age_ns)):
            return self._all
        with self._looking:
            if not self._names and self._endpoints.named:
                self._look_at_first()
            elif not self._names:
                self._look_with_retries()
            elif self._is_due(longest_age_ns):
                # When nothing answers, what asks a broker gets the error.
                with contextlib.suppress(UnavailableError):
                    self._look()
        return self._all

    def now(self) -> Mapping[str, Broker]:
        """The same for what is not to wait for a look once a name is known: the look is made
        beside, and the next caller sees what it found."""
        if self.fixed or not self._names:
            return self.all()
        if self._is_due(LOOK_AGAIN_NS):
            with self._guard:
                due = self._is_due(LOOK_AGAIN_NS)
                self._looked_ns = self._clock_ns()
            if due:
                self._beside.ended()  # the one before
                self._beside.begin(self._look_beside)
        return self._all

    def _look_beside(self) -> None:
        # What asks a broker gets the error; a client that was closed asks none.
        with contextlib.suppress(UnavailableError, InvalidRequestError):
            self._look_in_turn()

    def _look_in_turn(self) -> None:
        with self._looking:
            self._look()

    def several(self) -> bool:
        """More than one name is known."""
        return len(self._names) > 1

    def _is_due(self, age_ns: int) -> bool:
        changing = bool(self._silent) or self._endpoints.named
        return changing and self._clock_ns() - self._looked_ns > age_ns

    def _clock_ns(self) -> int:
        return self.settings.clock.monotonic_ns()

    def read(self, ask: Callable[[Broker], R], *, whole: bool = False) -> list[tuple[Broker, R]]:
        """What each broker answers. Of one that is away a warning is logged; raises its error when
        no other one answers, or the answer is to be `whole`. NotFoundError when all that answer
        raise it."""
        found: list[tuple[Broker, R]] = []
        away: list[StrataError] = []
        missing: NotFoundError | None = None
        for name, broker in (self.all()).items():
            try:
                found.append((broker, ask(broker)))
            except UnavailableError as error:
                away.append(of_broker(error, name))
            except NotFoundError as error:
                missing = error
        if away and (whole or not (found or missing)):
            raise away[0]
        if not found and missing is not None:
            raise missing
        for one in away:
            log.warning("left out: %s", one.message)
        return found

    def merged(self, ask: Callable[[Broker], Sequence[R]], *, whole: bool = False) -> list[R]:
        """The values that all brokers answer, each with its broker's name."""
        found = self.read(ask, whole=whole)
        return [one for broker, some in found for one in broker.named(some)]

    def change(self, brokers: Sequence[Broker], do: Callable[[Broker], R]) -> list[R]:
        """Do it at each of these brokers. Of several none is changed when one has no master now; an
        error later names those where it is done, and those where it is not."""
        if len(brokers) > 1:
            self._require_masters(brokers)
        done: list[R] = []
        for number, broker in enumerate(brokers):
            try:
                done.append(do(broker))
            except StrataError as error:
                of_broker(error, broker.name)
                if len(brokers) > 1:
                    names = [one.name for one in brokers]
                    error.message += f"; done at {', '.join(names[:number]) or 'none'}, not at " + (
                        ", ".join(names[number:])
                    )
                raise
        return done

    def _require_masters(self, brokers: Sequence[Broker]) -> None:
        for broker in brokers:
            name = broker.name
            try:
                state = broker.run(operations.log_state())
            except UnavailableError as error:
                raise UnavailableError(f"nothing was changed: {of_broker(error, name)}") from error
            if state.role is Role.SLAVE:
                raise UnavailableError(
                    f"nothing was changed: broker {name} has no master: {state.not_writable_reason}"
                )

    def close(self) -> None:
        """A look that goes on beside ends within seconds once the connections are closed, and
        finds no further broker."""
        self.whole.close()
        self._beside.ended()
        for broker in self._all.values():
            broker.close()

    def _look_at_first(self) -> None:
        """Resolve host names for the first time. A single address that gives no name is one broker:
        calls to it wait, or get the error."""
        try:
            self._look()
        except UnavailableError:
            if not self._endpoints.single:
                self._look_with_retries()

    def _look_with_retries(self) -> None:
        backoff = self.settings.backoff(self.settings.retry_timeout_s)
        while True:
            try:
                return self._look()
            except UnavailableError:
                delay_s = backoff.next_delay_s()
                if delay_s is None or self.whole.connections.closed.wait(delay_s):
                    raise

    def _look(self) -> None:
        self._looked_ns = self._clock_ns()
        found = self.whole.connections.ask(Endpoints.survey)
        there = set(self._endpoints.seeds())
        names = dict(self._names)
        for name, addresses in found.names.items():
            before = [one for one in names.get(name, []) if one in there]
            names[name] = before + [one for one in addresses if one not in before]
        named = {one for addresses in names.values() for one in addresses}
        silent_before = self._silent
        self._silent = {at: error for at, error in found.silent.items() if at not in named}
        for address, error in self._silent.items():
            if address not in silent_before:
                log.warning(
                    "if it is of another name than %s, a broker is left out: %s",
                    ", ".join(sorted(names)),
                    error.message,
                )
        known = {name: broker for name, broker in self._all.items() if name}
        name, own = next(iter(names.items())) if len(names) == 1 else ("", [])
        self._endpoints.choose(name, own)
        if name and not (self._silent or known or self._endpoints.named):
            self._names, self.fixed = names, True
            return
        for name, addresses in sorted(names.items()):
            # Of host names all addresses are asked when a shard's own have no master.
            silent = [] if self._endpoints.named else list(self._silent)
            if name in known:
                known[name].endpoints.move(addresses, silent)
            else:
                place = self._endpoints.of_broker(name, addresses, silent)
                known[name] = Broker(name, place, self.settings, self.several)
        self._all, self._names = known, names  # never changed: others go through those before


class Routing:
    """The routes of one client or producer. A single broker is asked nothing, but for keys."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._routes = ShardRoutes()

    def order(self, topic: str, queue_id: int | None) -> Sequence[Broker]:
        """The brokers that may take a message, in the order in which they are tried."""
        brokers = self._brokers.now()
        if len(brokers) == 1:
            return tuple(brokers.values())
        now_ns = self._learn(topic, brokers)
        if queue_id is not None:
            return [brokers[self._routes.of_queue(topic, queue_id, brokers)]]
        return [brokers[name] for name in self._routes.in_turn(topic, brokers, now_ns)]

    def slot(
        self, topic: str, key: str, queue_id: int | None, keys: Sequence[str]
    ) -> tuple[Broker, int, Sequence[str]]:
        """The broker and queue of an ordering key, and the message's keys (`ordered_place`)."""
        brokers = self._brokers.now()
        self._learn(topic, brokers)
        slots = self._routes.slots(topic, brokers)
        if not slots:
            self._routes.expire(topic)  # it may be created before the next message
        number, keys = ordered_place(topic, key, queue_id, keys, len(slots))
        name, queue_id = slots[number]
        return brokers[name], queue_id, keys

    def require_taken(self, topic: str, broker: Broker) -> None:
        """InvalidRequestError when this broker takes no messages of the topic, and others do."""
        brokers = self._brokers.now()
        if len(brokers) == 1:
            return
        self._learn(topic, brokers)
        takers = self._routes.takers(topic, brokers)
        if broker.name not in takers:
            self._routes.expire(topic)  # it may be created before the next message
            raise InvalidRequestError(
                f"the transaction is of broker {broker.name}, which took its first message, and "
                f"messages of {topic} are taken by {', '.join(takers)}: create the topic there, too"
            )

    def send_in_turn(
        self,
        order: Sequence[Broker],
        send: Callable[[Broker], Sequence[SendResult]],
    ) -> Sequence[SendResult]:
        """What the first of these brokers answers that takes the messages, and else the last."""
        for broker in order:
            try:
                results = broker.named(send(broker))
            except StrataError as error:
                failure = of_broker(error, broker.name)
                if not took_nothing(failure) or broker is order[-1]:
                    raise
            else:
                errors = [of_broker(one.error, broker.name) for one in results if one.error]
                if not all(map(is_refused, results)):
                    self.back(broker)
                    return results
                if broker is order[-1]:
                    return results
                failure = errors[0]
            self.pass_over(broker, failure)
        raise AssertionError("a message has a broker")

    def _learn(self, topic: str, brokers: Mapping[str, Broker]) -> int:
        """Ask about the topic where that is due. Returns the time."""
        routes, now_ns = self._routes, self._brokers.settings.clock.monotonic_ns()
        to_ask = routes.to_ask(topic, brokers, now_ns)
        patient = len(brokers) == 1 and not routes.knows(topic)  # nothing to go on with meanwhile
        found: dict[str, Topic | None] = {}
        for name in to_ask:
            broker = brokers[name]
            try:
                ask = broker.run if patient else broker.run_soon
                some = ask(operations.topics(topic))
                found[name] = some[0] if some else None
                if not (some and some[0].permission & PERMISSION_WRITE):
                    # Is it this topic alone, or all of the broker's?
                    mark = ask(operations.topics(DRAIN_TOPIC))
                    is_open = drain_of_topics(mark) is Drain.OPEN
                    (routes.drained.discard if is_open else routes.drained.add)(name)
                else:
                    routes.drained.discard(name)
            except UnavailableError as error:
                if patient:
                    raise
                self.pass_over(broker, of_broker(error, name))
        if to_ask or not routes.knows(topic):
            routes.learn(topic, found, now_ns)
        return now_ns

    def pass_over(self, broker: Broker, error: StrataError, *, until_back: bool = False) -> None:
        """It took nothing, and gets nothing for a while; `until_back`: until `back`."""
        now_ns = self._brokers.settings.clock.monotonic_ns()
        if self._routes.away(broker.name, now_ns, until_back=until_back) and broker.name:
            log.warning("broker unavailable, nothing is sent to it: %s", error.message)

    def back(self, broker: Broker) -> None:
        self._routes.back(broker.name)
