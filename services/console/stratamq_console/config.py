"""Settings of the console service; `docs/configuration.md` is made from them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stratamq.errors import ConfigurationError
from stratamq.rpc.address import split_address
from stratamq.rpc.rooms import CONSOLE
from stratamq.service.config import ServiceConfig, setting
from stratamq.service.installed import missing_packages
from stratamq_console.decoders import parse_decoder

_PATH = re.compile(r"(/[a-zA-Z0-9_-]+)*")


@dataclass(frozen=True)
class ConsoleConfig(ServiceConfig):
    """Pages in the browser."""

    http_address: str = setting(
        "",
        unit="host:port",
        doc="Where browsers connect. `stratamq up` gives it 127.0.0.1:10980, and behind `--port` "
        "base port + 13; empty: no pages. Other hosts than loopback need `access.file`. With `tls` "
        "the pages are served by HTTPS. The service does not start without it.",
    )
    path: str = setting(
        "",
        unit="",
        doc="What the pages' paths begin with, as /console, where a proxy serves them beside "
        "others.",
    )
    hosts: tuple[str, ...] = setting(
        (),
        unit="host",
        doc="Names that browsers reach the pages by, beside that of `http_address`, localhost and "
        "loopback addresses. Without `access.file` requests for other names are refused: a page of "
        "another site could read the broker by one.",
    )
    idle_minutes: int = setting(
        8 * 60,
        unit="min",
        minimum=1,
        maximum=7 * 24 * 60,
        doc="A user who asked for no page for so long has to log in again.",
    )
    metrics_token_file: Path | None = setting(
        None,
        unit="path",
        doc="File with a token of a user who may observe: by it the console reads the services' "
        "metrics, of which rates are made, where `access.file` is set, and asks other shards.",
    )
    cluster: str = setting(
        "",
        unit="host:port",
        doc="The addresses of all shards' brokers, or their host name, as clients have them: the "
        "page Cluster shows the other shards, too. Shards do not know each other.",
    )

    decoders: tuple[str, ...] = setting(
        (),
        unit="",
        doc="How bodies of topics are decoded, the first that fits: TOPICS=protobuf:FILE:MESSAGE "
        "(a descriptor set of protoc), TOPICS=avro:FILE (a schema), TOPICS=msgpack; * stands for "
        "any characters. Avro and msgpack need the Python packages fastavro and msgpack.",
    )

    def faults(self) -> Iterable[str]:
        try:
            if self.http_address:
                split_address(self.http_address)
        except ConfigurationError as error:
            yield f"http_address: {error}"
        if not self.http_address:
            yield "http_address: the service has no pages without it"
        if missing := missing_packages(CONSOLE):
            yield f"the pages need {', '.join(missing)}: pip install 'stratamq[{CONSOLE}]'"
        try:
            for seed in filter(None, self.cluster.split(",")):
                split_address(seed.strip())
        except ConfigurationError as error:
            yield f"cluster: {error}"
        for decoder in self.decoders:
            try:
                parse_decoder(decoder)
            except ConfigurationError as error:
                yield f"decoders: {error}"
        if not _PATH.fullmatch(self.path):
            yield f"path: {self.path!r} is no path like /console"
