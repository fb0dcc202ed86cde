"""Settings of the gateway service; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.errors import ConfigurationError
from stratamq.rpc.address import is_wildcard
from stratamq.service.config import ServiceConfig, setting
from stratamq_gateway.messaging.http2_servers import has_h2corn

_ADDRESSES = ("remoting_address", "remoting_advertised", "grpc_address", "grpc_advertised")
_LISTS = ("remoting_further_addresses", "brokers")


@dataclass(frozen=True)
class GatewayConfig(ServiceConfig):
    """RocketMQ's own clients."""

    number: int = setting(
        1,
        unit="",
        minimum=1,
        maximum=99,
        doc="Further gateways over one store have other numbers, from 2 on, and addresses of their "
        "own. `stratamq up` starts the first alone, and routes name the gateway that is asked.",
    )
    remoting_address: str = setting(
        "",
        unit="host:port",
        doc="Where clients of RocketMQ's remoting protocol connect, for name server and broker: "
        "RocketMQ's name server has port 9876. `stratamq up` gives it 127.0.0.1:9876, and behind "
        "`--port` base port + 10; empty: no such clients. The service does not start without this "
        "address or `grpc_address`.",
    )
    remoting_further_addresses: tuple[str, ...] = setting(
        (),
        unit="host:port",
        doc="Where the same clients connect, too: the address of an old broker, with port 10911, "
        "which ids of messages and cached routes name; the port two below that of "
        "`remoting_address`, which RocketMQ's dashboard takes unless its "
        "`rocketmq.config.isVIPChannel` is false.",
    )
    remoting_advertised: str = setting(
        "",
        unit="host:port",
        rocketmq="brokerIP1",
        doc="The address that routes name; empty: `remoting_address`.",
    )
    grpc_address: str = setting(
        "",
        unit="host:port",
        doc="Where clients of RocketMQ 5's gRPC protocol connect: RocketMQ's proxy has port 8081. "
        "`stratamq up` gives it 127.0.0.1:8081, and behind `--port` base port + 11; empty: no such "
        "clients. With `tls` clients with TLS and in clear are served, "
        "or those with a certificate alone where `tls.require_client_certificates` is set.",
    )
    grpc_advertised: str = setting(
        "",
        unit="host:port",
        doc="The address that routes of the gRPC protocol name; empty: the one that the client "
        "says it has used, or with `brokers` `grpc_address`.",
    )
    grpc_server: str = setting(
        "auto",
        unit="",
        choices=("auto", "h2corn", "grpcio"),
        doc="The server for clients of the gRPC protocol in clear. h2corn takes less than half of "
        "the processor time, and comes with the extra `gateway`; `auto`: h2corn where it is "
        "installed. Clients with TLS have gRPC's own server. Clients in clear that are given "
        "several addresses at once may need it, too: h2corn refuses those as an authority.",
    )
    console: bool = setting(
        True,
        unit="",
        doc="Whether browsers find the console at /console/ of `grpc_address`, and health checks "
        "/health: where h2corn serves it, and `tls.require_client_certificates` is not set. "
        "Without `access.file` the pages are for browsers of this machine.",
    )
    cluster: str = setting(
        "DefaultCluster",
        unit="",
        rocketmq="brokerClusterName",
        doc="The cluster's name in routes.",
    )
    brokers: tuple[str, ...] = setting(
        (),
        unit="host:port",
        doc="Addresses of a service of every member of every broker of the cluster, this one among "
        "them. Routes then name all masters, at the advertised addresses of their gateways, and "
        "their slaves behind them. Empty: this broker alone.",
    )
    repeated_send_window_ms: int = setting(
        0,
        unit="ms",
        minimum=0,
        maximum=600_000,
        doc="Clients of the remoting protocol: a send with the user, UNIQ_KEY, topic, properties "
        "and body of one that was stored within this time before is not stored again, and is "
        "answered as that one, as long as the topic has it. Half messages are each stored. The "
        "gateway remembers 100 000 messages at most, and none after it was "
        "restarted. 0: each send is stored.",
    )
    creates_topics: bool = setting(
        True,
        unit="",
        rocketmq="autoCreateTopicEnable",
        doc="Whether clients find a route for a topic that does not exist: the first message makes "
        "it, if the commit log creates topics.",
    )

    def instance(self) -> str:
        return f"-{self.number}" if self.number > 1 else ""

    def remoting_listens(self) -> list[str]:
        return [one for one in (self.remoting_address, *self.remoting_further_addresses) if one]

    def faults(self) -> Iterable[str]:
        named = [(one, getattr(self, one)) for one in _ADDRESSES]
        named += [(one, value) for one in _LISTS for value in getattr(self, one)]
        for name, value in named:
            try:
                if value and is_wildcard(value) and self._is_routed(name):
                    protocol = name.removesuffix("_address")
                    yield (
                        f"{protocol}_advertised: routes of several brokers need it, since "
                        f"{name} is every address of the host"
                    )
            except ConfigurationError as error:
                yield f"{name}: {error}"
        if self.grpc_server == "h2corn" and not has_h2corn():
            yield "grpc_server: h2corn is not installed: pip install 'stratamq[gateway]'"
        if self.remoting_further_addresses and not self.remoting_address:
            yield "remoting_further_addresses: further than none: set remoting_address"
        if not (self.remoting_address or self.grpc_address):
            yield "remoting_address, grpc_address: the service has no clients without one of them"

    def _is_routed(self, name: str) -> bool:
        """Routes name the address that is listened on."""
        advertised = {
            "remoting_address": self.remoting_advertised,
            "grpc_address": self.grpc_advertised,
        }
        return bool(self.brokers) and advertised.get(name) == ""
