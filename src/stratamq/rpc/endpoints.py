"""Where the services of a broker are: from their run files, from the caller, or from a service.

A target is one of

    a directory                                    the store; services announce themselves in it
    host:port                                      any service, which knows where the others are
    host:port,host:port,…                          the same of several members of one cluster, or
                                                   of brokers of several names; a host name that
                                                   resolves to several addresses is all of them
    commitlog=host:port,dispatcher=host:port,…     the services one by one

A service behind a `host:port` is queried over the network: the owner of the `Endpoints` runs its
plan (`rpc.locating`) and passes it the results.
"""

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from stratamq.errors import ConfigurationError, InvalidRequestError, UnavailableError
from stratamq.rpc import discovery
from stratamq.rpc.address import is_unix, split_address
from stratamq.rpc.credentials import Credentials, credentials_of
from stratamq.rpc.locating import FoundBroker, Survey, ask_members, locate, survey
from stratamq.rpc.methods import Method
from stratamq.rpc.names import RESOLVE_AGAIN_NS, Names, is_name
from stratamq.rpc.questions import Plan, Reply, Silence
from stratamq.rpc.request_ids import CallableWithRequestId, traceparent
from stratamq.rpc.rooms import SERVICES
from stratamq.rpc.socket_calls import STREAM, Begin, SocketCalls, WrittenStream

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # the services bound what they send
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),  # a proxy of the environment is for the web
    ("grpc.use_local_subchannel_pool", 1),  # one client's connection is not another's
    ("grpc.initial_reconnect_backoff_ms", 50),
    # Not a wait, for all its name: how long an attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Of any ping, gRPC's own too; 60 s by default, in which a broker that is frozen takes calls.
    ("grpc.http2.ping_timeout_ms", 20_000),
)

_MAX_HINTS = 8


class Endpoints:
    """Where each room is now. Not bound to a thread."""

    def __init__(
        self,
        root: Path | None = None,
        addresses: Mapping[str, str] | None = None,
        seeds: Sequence[str] = (),
        broker: str = "",
        own: Collection[str] = (),
        credentials: Credentials | None = None,
        hosts: Names | None = None,
        wider: Sequence[str] = (),
        silence: Silence | None = None,
    ) -> None:
        """`seeds`: addresses of any services. `addresses`: by room; they win over everything else.
        `broker`: look for brokers of this name alone ("": of any name); `own`: seeds that had this
        name. `credentials`: by default those that the environment names (ConfigurationError).
        `hosts`: resolves host names. `wider`: further addresses, asked if no master is found at
        the seeds. `silence`: which addresses have not answered."""
        self.root = root
        self.credentials = credentials_of() if credentials is None else credentials
        self._addresses = dict(addresses or {})
        self._seeds = tuple(seeds)
        self.named = any(map(is_name, seeds))
        """A host name is among the seeds: what it stands for may change."""
        self.broker = broker
        self._own = frozenset(own)
        self.hosts = hosts or Names()
        self.silence = silence or Silence()
        self._wider = tuple(wider)
        self._wider_ns: int | None = None
        """When the wider addresses were asked."""
        self._hints: tuple[str, ...] = ()
        self._found: FoundBroker | None = None

    @property
    def searched(self) -> bool:
        """The services are looked for over the network: run `plan`, then call `found`."""
        return bool(self._seeds)

    @property
    def several(self) -> bool:
        """Another broker may become the master."""
        return len(self.seeds()) + len(self._hints) > 1 or bool(self._wider)

    @property
    def mixed(self) -> bool:
        """The brokers may have different names."""
        return (len(self._seeds) > 1 or self.named) and not self.broker

    @property
    def single(self) -> bool:
        """One address, as far as names are resolved."""
        return len(self.seeds()) == 1

    def resolving(self) -> list["Future[None]"]:
        """Wait for these before a plan, so that host names are resolved (`Names.begin`)."""
        return self.hosts.begin((*self._seeds, *self._wider))

    def seeds(self) -> list[str]:
        """Return the addresses of this target whose names are resolved."""
        return self.hosts.expand(self._seeds)

    def plan(self) -> Plan[FoundBroker]:
        seeds = list(dict.fromkeys((*self.seeds(), *self._hints)))
        wider = self._wider_now if self._wider else None
        return locate(
            seeds,
            self._found,
            self.broker,
            self._own,
            wider,
            silence=self.silence,
            clock=self.hosts.clock,
        )

    def _wider_now(self) -> list[str]:
        """The wider addresses, at most once in `RESOLVE_AGAIN_NS`: there may be very many."""
        now_ns = self.hosts.clock.monotonic_ns()
        if self._wider_ns is not None and now_ns - self._wider_ns < RESOLVE_AGAIN_NS:
            return []
        self._wider_ns = now_ns
        return self.hosts.expand(self._wider)

    def survey(self) -> Plan[Survey]:
        """Which names the brokers at the seeds have."""
        return survey(self.seeds(), self.silence, self.hosts.clock)

    def members(self, asked: Sequence[tuple[Method, Any]]) -> Plan[dict[str, list[Reply]]]:
        """Ask each broker that `plan` may choose."""
        return ask_members((*self.seeds(), *self._hints), self.broker, asked)

    def choose(self, broker: str, own: Collection[str]) -> None:
        """From now on look for brokers of this name alone ("": of any name). A broker of another
        name that was found is forgotten."""
        if not broker or (self._found is not None and self._found.name not in (broker, "")):
            self._found = None
        self.broker, self._own = broker, frozenset(own)

    def of_broker(self, broker: str, own: Sequence[str], silent: Sequence[str]) -> "Endpoints":
        """The endpoints of one broker name: `own` seeds have that name, `silent` ones may."""
        return Endpoints(
            seeds=(*own, *silent),
            broker=broker,
            own=own,
            credentials=self.credentials,
            hosts=self.hosts,
            wider=self._seeds if self.named else (),
            silence=Silence(self.silence),
        )

    def move(self, own: Sequence[str], silent: Sequence[str]) -> None:
        """Use other addresses from now on; see `of_broker`."""
        self._seeds, self._own = (*own, *silent), frozenset(own)
        self.named = any(map(is_name, self._seeds))

    def hint(self, address: str) -> None:
        """Ask this address, too: a broker of the cluster has named it as another broker's."""
        if address not in (*self._seeds, *self._hints):
            self._hints = (*self._hints, address)[-_MAX_HINTS:]

    def found(self, broker: FoundBroker) -> None:
        self._found = broker

    def unknown(self, room: str) -> bool:
        """Whether the room must be looked for first."""
        return self.searched and self._found is None and room not in self._addresses

    def names(self, room: str) -> bool:
        """Whether the room's address is known, or may become known."""
        return self.root is not None or room in self._addresses or self.searched

    def known(self) -> dict[str, str]:
        """All rooms that are known now, and their addresses."""
        known = dict(self._found.addresses) if self._found is not None else {}
        if self.root is not None:
            read = {room: discovery.read(self.root, room) for room in SERVICES}
            known = {room: one.nearest() for room, one in read.items() if one is not None}
        return known | self._addresses

    def listed(self) -> dict[str, str]:
        """All rooms that are known now, and their addresses as other machines know them."""
        return {room: self.listening(room) or address for room, address in self.known().items()}

    def listening(self, room: str) -> str:
        """The address on which a room of this directory listens for other machines. "" if it has
        not announced itself, or if its directory is not known."""
        if self.root is None or room in self._addresses:
            return ""
        endpoint = discovery.read(self.root, room)
        return "" if endpoint is None else endpoint.address

    def calls(self, room: str) -> str:
        """The path of the socket of a room's local calls; "" where this process has none."""
        if self.root is None or room in self._addresses:
            return ""
        endpoint = discovery.read(self.root, room)
        return "" if endpoint is None else endpoint.calls()

    def advertised(self, room: str) -> str:
        """The address that clients are told (`rpc.address.advertised_address`), if the broker's
        directory is known. UnavailableError when the room's address is not known."""
        endpoint = None if self.root is None else discovery.read(self.root, room)
        if room in self._addresses or endpoint is None:
            return self.address(room)
        return endpoint.advertised or endpoint.address

    def address(self, room: str) -> str:
        """UnavailableError when the room's address is not known."""
        if room in self._addresses:
            return self._addresses[room]
        if self._found is not None:
            return self._found.address(room)
        if self.root is None:
            raise UnavailableError(f"the address of the {room} service is not known: name it")
        endpoint = discovery.read(self.root, room)
        if endpoint is None:
            raise UnavailableError(
                f"no {room} service has announced itself in {self.root}: is it running?"
            )
        return endpoint.nearest()


def parse_target(
    target: str | os.PathLike[str],
    broker: str = "",
    credentials: Credentials | None = None,
    hosts: Names | None = None,
) -> Endpoints:
    """InvalidRequestError when `target` is none of the four kinds, or `broker`, a broker's name,
    does not go with its kind. `credentials` and `hosts` as of `Endpoints`."""
    found = _parsed(target, credentials, hosts)
    if broker and not found.searched:
        raise InvalidRequestError(
            f"a broker is chosen by its name ({broker}) among addresses HOST:PORT,HOST:PORT; "
            f"{target} is one broker"
        )
    found.broker = broker
    return found


def _parsed(
    target: str | os.PathLike[str], credentials: Credentials | None, hosts: Names | None
) -> Endpoints:
    if isinstance(target, os.PathLike) or os.path.isdir(target):
        root = Path(target)
        if not root.is_dir():
            raise InvalidRequestError(f"there is no directory {root}")
        return Endpoints(root, credentials=credentials)
    if "=" not in target:
        seeds = [part.strip() for part in target.split(",")]
        for seed in seeds:
            _check(seed, target)
        return Endpoints(seeds=tuple(dict.fromkeys(seeds)), credentials=credentials, hosts=hosts)
    pairs = [part.partition("=") for part in target.split(",") if part.strip()]
    addresses = {room.strip(): address.strip() for room, _, address in pairs}
    for room, address in addresses.items():
        if room not in SERVICES:
            raise InvalidRequestError(f"there is no service {room!r}: {', '.join(SERVICES)}")
        _check(address, target)
    return Endpoints(addresses=addresses, credentials=credentials)


def _check(address: str, target: str) -> None:
    try:
        named = is_unix(address) or bool(split_address(address)[0])
    except ConfigurationError:
        named = False
    if not named:
        raise InvalidRequestError(f"{target!r} is neither a directory nor host:port")


class Channels:
    """One channel for each address, made at its first use; a room that has moved gets another.

    `kind` is the module `grpc` or `grpc.aio`. Thread-safe.
    """

    def __init__(self, endpoints: Endpoints, kind: Any) -> None:
        self._endpoints = endpoints
        self._credentials = endpoints.credentials
        self._kind = kind
        self._replaced: list[Any] = []
        """Channels with credentials of before."""
        self._lock = threading.Lock()
        self._open: dict[str, Any] = {}
        self._addresses: dict[str, str] = {}
        """Where the rooms are that were used."""
        self._callables: dict[Method, Any] = {}
        self._socket_calls: dict[str, SocketCalls] = {}

    def callable(self, method: Method) -> Any:
        """UnavailableError when the address of the method's room is not known."""
        known = self._callables.get(method)
        if known is not None:
            return known
        channel = self.channel(method.room)
        with self._lock:
            if self._open.get(self._addresses.get(method.room, "")) is not channel:
                return self._on(method, channel)  # it has moved meanwhile
            return self._callables.setdefault(method, self._on(method, channel))

    def ask(self, method: Method, address: str) -> Any:
        """A method's callable at an address."""
        return self._on(method, self.at(address))

    def _on(self, method: Method, channel: Any) -> Any:
        return CallableWithRequestId(method.on(channel), self._credentials.metadata())

    def channel(self, room: str) -> Any:
        with self._lock:
            if room not in self._addresses:
                self._addresses[room] = self._endpoints.address(room)
            return self._to(self._addresses[room])

    def at(self, address: str) -> Any:
        """The channel to an address."""
        with self._lock:
            return self._to(address)

    def _to(self, address: str) -> Any:
        if address not in self._open:
            host = self._endpoints.hosts.certified_as(address)
            channel = self._credentials.connect(self._kind, address, CHANNEL_OPTIONS, host)
            self._open[address] = channel
        return self._open[address]

    def socket_calls(self, room: str) -> SocketCalls:
        """Calls to the room without gRPC. Of an event loop."""
        with self._lock:
            if room not in self._socket_calls:
                self._socket_calls[room] = SocketCalls(partial(self._endpoints.calls, room))
            return self._socket_calls[room]

    async def open_stream(self, method: Method) -> WrittenStream:
        """A stream of the method, without gRPC where the service can be reached so.
        UnavailableError when the address of its room is not known."""
        stream = WrittenStream(
            self.socket_calls(method.room).connect_stream,
            Begin(STREAM, 0, method.path, traceparent(), b"", b""),
            lambda: self.callable(method)(),
            (method.serialize, method.deserialize),
        )
        await stream.open()
        return stream

    def renew(self, room: str) -> bool:
        """After a room did not answer: look for it again. True when it has moved."""
        with self._lock:
            return self._forgotten() or self._renewed(room)

    def renew_all(self) -> None:
        """Every room is where the endpoints have it now."""
        with self._lock:
            self._forgotten()
            for room in list(self._addresses):
                self._renewed(room)

    def _forgotten(self) -> bool:
        """After certificates were replaced all channels are made again; open calls go on."""
        if not self._credentials.changed():
            return False
        self._replaced += self._open.values()
        self._open.clear()
        self._callables.clear()
        return True

    def _renewed(self, room: str) -> bool:
        if room not in self._addresses:
            return False
        try:
            address = self._endpoints.address(room)
        except UnavailableError:
            return False
        if address == self._addresses[room]:
            return False
        del self._addresses[room]
        for method in [known for known in self._callables if known.room == room]:
            del self._callables[method]
        return True

    def close(self) -> list[Any]:
        """Forget all channels; the caller closes what is returned."""
        with self._lock:
            channels = [*self._open.values(), *self._replaced, *self._socket_calls.values()]
            self._socket_calls.clear()
            self._replaced.clear()
            self._open.clear()
            self._addresses.clear()
            self._callables.clear()
            return channels
