"""Where the services of `stratamq up` listen.

    base port      the log service's, 10911: the one address that clients need
    behind it      the other services, by the port offsets of the register (`rpc/rooms.py`)
    9876, 8081     clients of RocketMQ's two protocols; with `--port` behind the base port, too
    10980          browsers; with `--port` behind the base port, too

`--port N` moves all of them, `--port 0` takes free ones; `--bind HOST` is the host of all. What is
typed wins over a file and the environment; these win over the defaults, setting by setting;
`--set` wins over everything. Every port is tried before anything starts.
"""

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from stratamq.errors import ConfigurationError
from stratamq.rpc.address import is_host, is_unix, join_address, split_address
from stratamq.rpc.rooms import COMMITLOG as LOG
from stratamq.rpc.rooms import CONSOLE, GATEWAY, LARGEST_PORT_OFFSET, REGISTER
from stratamq.service.access import SECTION as ACCESS
from stratamq.service.access import AccessConfig, unguarded
from stratamq.service.arguments import given_value, is_given
from stratamq.service.config import load
from stratamq.service.ports import TAKEN, listening_problem
from stratamq.service.tls import SECTION as TLS
from stratamq.service.tls import TlsConfig

DEFAULT_PORT = 10911
DEFAULT_HOST = "127.0.0.1"
WHO = {
    "replication_address": "the slaves' port",
    "remoting_address": "RocketMQ's clients",
    "grpc_address": "RocketMQ 5's gRPC clients",
    "http_address": "the console",
}
LARGEST_PORT = 65_535 - LARGEST_PORT_OFFSET
_OF_GATEWAY = REGISTER[GATEWAY].further_ports
_APART = 20
"""Between the base ports of two brokers of one machine, as suggested."""


@dataclass(frozen=True, slots=True)
class ListeningPlace:
    """Where something is going to listen, by which setting."""

    who: str
    section: str
    name: str
    host: str
    port: int


def listening_settings(
    port: int | None,
    bind: str | None,
    rooms: Iterable[str],
    config: Path | None = None,
    overrides: Sequence[str] = (),
) -> list[str]:
    """The settings, to stand before `overrides`. ConfigurationError for a host that is none."""
    typed = port is not None or bind is not None
    base = DEFAULT_PORT if port is None else port
    host = DEFAULT_HOST if bind is None else bind.removeprefix("[").removesuffix("]")
    if not host or not is_host(host):
        raise ConfigurationError([f"--bind {bind}: a host name or an IP address is expected"])
    found = []
    for behind, section, name in _names(rooms):
        given = given_value(section, name, config, overrides=overrides)
        if given is None or (typed and given != ""):
            known = REGISTER[section].well_known_ports.get(name) if port is None else None
            at = join_address(host, known or (base + behind if base else 0))
            found.append(f"{section}.{name}={at}")
    return found


def left_out(*, gateway: bool = False, remoting: bool = False, console: bool = False) -> list[str]:
    """The settings of `--no-gateway`, `--no-remoting` and `--no-console`."""
    names = _OF_GATEWAY if gateway else ["remoting_address"] if remoting else []
    pages = [f"{CONSOLE}.http_address="] if console else []
    return [*(f"{GATEWAY}.{name}=" for name in names), *pages]


def store_host_settings(config: Path | None, overrides: Sequence[str]) -> list[str]:
    """The settings, to stand before `overrides`. Ids of messages name the store host, and
    RocketMQ's clients look a message up there by its id."""
    if is_given(LOG, "store_host", config, overrides=overrides):
        return []
    found = _place("", GATEWAY, "remoting_address", config, overrides)
    return [
        f"{LOG}.store_host={join_address(one.host, one.port)}"
        for one in found
        if one.port and _is_an_address(one.host)
    ]


def _is_an_address(host: str) -> bool:
    try:
        return not ip_address(host).is_unspecified
    except ValueError:
        return False


def places(
    rooms: Iterable[str], config: Path | None, overrides: Sequence[str]
) -> list[ListeningPlace]:
    """Where all of it listens by its settings. What cannot be understood is left to its service,
    which reports it with its other settings."""
    found = []
    for _, section, name in _names(rooms):
        found += _place(WHO.get(name, section), section, name, config, overrides)
        if name == "address":
            found += _place(f"{section}'s metrics", section, "metrics_address", config, overrides)
    return found


def refuse_taken(places: Sequence[ListeningPlace], defaults: Sequence[str]) -> None:
    """ConfigurationError with every place of which nothing can listen, and what to type.

    `defaults` are the settings of `listening_settings`: for these `--port` is the way out.
    """
    named: dict[tuple[str, int], ListeningPlace] = {}
    faults: list[str] = []
    taken: dict[tuple[str, str], list[str]] = {}
    for place in places:
        if not place.port:
            continue
        setting = f"{place.section}.{place.name}"
        first = named.setdefault((place.host, place.port), place)
        if first is not place:
            faults.append(
                f"{setting}: port {place.port} is already {first.who}'s "
                f"({first.section}.{first.name})"
            )
            continue
        problem = listening_problem(place.host, place.port)
        if problem is None:
            continue
        if f"{setting}={join_address(place.host, place.port)}" not in defaults:
            faults.append(
                f"{setting}: {join_address(place.host, place.port)} cannot be used: {problem}"
            )
        else:
            taken.setdefault((place.host, problem), []).append(f"{place.port} ({place.who})")
    for (host, problem), ports in taken.items():
        what = f"taken at {host}" if problem == TAKEN else f"{host}: {problem}"
        way_out = _way_out(places, problem)
        if problem == TAKEN and any(WHO[name] in one for name in _OF_GATEWAY for one in ports):
            way_out += "; or without RocketMQ's protocols: --no-gateway"
        if problem == TAKEN and any(WHO["http_address"] in one for one in ports):
            way_out += "; or without the console: --no-console"
        faults.append(f"{what}: {', '.join(ports)}; {way_out}")
    if faults:
        raise ConfigurationError([f"nothing was started: {faults[0]}", *faults[1:]])


def open_to_others(
    places: Iterable[ListeningPlace], config: Path | None, overrides: Sequence[str]
) -> str | None:
    """Return a warning if other machines can reach a service. Raises ConfigurationError if
    authentication is disabled there without `access.open_to_others`."""
    reachable = [place for place in places if not is_loopback(place.host)]
    if not reachable:
        return None
    hosts = ", ".join(dict.fromkeys(place.host or "every address" for place in reachable))
    access = load(AccessConfig, ACCESS, config, overrides=overrides)
    tls = load(TlsConfig, TLS, config, overrides=overrides)
    if access.file is None and not access.open_to_others:
        raise ConfigurationError([f"nothing was started: {unguarded(hosts)}"])
    if access.file is None:
        return (
            f"listening on {hosts}: other machines can reach these ports, and authentication is "
            "disabled (access.open_to_others): every client can read, write and delete everything. "
            f"Restrict access with a firewall, or use --bind {DEFAULT_HOST}"
        )
    if tls.files is None:
        return (
            f"listening on {hosts} without TLS: messages are sent in plain text, and tokens from "
            "other machines are rejected (`stratamq tls init` creates certificates)"
        )
    return None


def is_loopback(host: str) -> bool:
    """Only processes of this machine reach what listens on `host`."""
    if not host:
        return False
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = [str(address[0]) for *_, address in found]
    return all(one.startswith("127.") or one == "::1" for one in addresses)


def _names(rooms: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """How far behind the base port, section, name."""
    for room in rooms:
        yield REGISTER[room].port_offset, room, "address"
        for name, offset in REGISTER[room].further_ports.items():
            yield offset, room, name


def _place(
    who: str, section: str, name: str, config: Path | None, overrides: Sequence[str]
) -> list[ListeningPlace]:
    value = given_value(section, name, config, overrides=overrides)
    if not isinstance(value, str) or not value or is_unix(value):
        return []
    try:
        host, port = split_address(value)
    except ConfigurationError:
        return []
    return [ListeningPlace(who, section, name, host, port)]


def _way_out(places: Sequence[ListeningPlace], problem: str) -> str:
    if problem != TAKEN:
        return "name another with --bind HOST and --port N"
    hosts = {place.host for place in places}
    base = DEFAULT_PORT
    while base + _APART <= LARGEST_PORT:
        base += _APART
        if all(
            listening_problem(host, base + behind) is None
            for host in hosts
            for behind in range(LARGEST_PORT_OFFSET + 1)
        ):
            return (
                "another broker, or another program, has them: start this one with "
                f"--port {base}, or with --port 0, which takes free ports"
            )
    return "start this broker with --port N, or with --port 0, which takes free ports"
