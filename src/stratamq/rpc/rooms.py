"""The register of services: one value for each service that a broker may have.

    name         port offset   runs
    commitlog    0             always; the one address that clients need
    dispatcher   1             always; follows the log
    index        2             always; follows the log
    ha           3             always; slaves connect to the master's offset 8
    janitor      4             always
    delivery     5             always; follows the log
    gateway      6             unless `gateway.remoting_address` and `grpc_address` are empty;
                               RocketMQ's clients connect to 9876 and 8081, or to offsets 10 and 11
    tier         7             where `tier.target` is set; follows the log
    agent        9             where `agent.store` is set
    console      12            unless `console.http_address` is empty; browsers connect to 10980, or
                               to offset 13

Port offsets are part of how brokers are reached: they never change, and none is used twice.
A service that is added here is found by `stratamq up`, `status`, clients, permissions, the
benchmarks and the pages; `tests/rpc/test_rooms.py` lists what else each service must have.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

COMMITLOG, DISPATCHER, INDEX = "commitlog", "dispatcher", "index"
HA, JANITOR, DELIVERY, TIER, AGENT = "ha", "janitor", "delivery", "tier", "agent"
GATEWAY, CONSOLE = "gateway", "console"


@dataclass(frozen=True, slots=True)
class RegisteredService:
    """`name` is also the settings section, the run file and the package `stratamq_{name}`."""

    name: str
    proto: str
    """The service's name in the proto package; its module is `{proto_module}_pb2`."""
    port_offset: int
    proto_module: str = ""
    further_ports: dict[str, int] = field(default_factory=dict)
    """Offsets of the service's other listening settings."""
    well_known_ports: dict[str, int] = field(default_factory=dict)
    """The ports of those settings where no base port is given: clients of others expect them."""
    needed_settings: tuple[str, ...] = ()
    """`stratamq up` starts the service where one of these has a value; none: always."""
    packages: tuple[str, ...] = ()
    """What `pip install 'stratamq[NAME]'` adds and the service needs: `stratamq up` leaves it out
    where one is not installed."""
    follows: bool = False
    """Whether the service follows the commit log over the stream `Follow`."""
    essential: bool = False
    """Whether clients cannot send, read or find messages without it."""
    light: bool = False
    """Whether `stratamq up` runs it in one process with the other light ones. Not a service for
    which others wait while they answer: it would wait for their garbage collections, and end with
    them (ARCHITECTURE.md)."""
    colour: str = ""
    """On a terminal."""

    @property
    def module(self) -> str:
        return f"{self.proto_module or self.name}_pb2"


REGISTER: dict[str, RegisteredService] = {
    service.name: service
    for service in (
        RegisteredService(COMMITLOG, "CommitLogService", 0, essential=True, colour="cyan"),
        RegisteredService(
            DISPATCHER, "DispatcherService", 1, follows=True, essential=True, colour="green"
        ),
        RegisteredService(
            INDEX,
            "IndexService",
            2,
            follows=True,
            essential=True,
            light=True,
            colour="magenta",
        ),
        RegisteredService(
            HA, "ReplicationService", 3, "replication", {"replication_address": 8}, colour="blue"
        ),
        RegisteredService(JANITOR, "JanitorService", 4, light=True, colour="yellow"),
        RegisteredService(
            DELIVERY, "DeliveryService", 5, follows=True, light=True, colour="bright_cyan"
        ),
        RegisteredService(
            GATEWAY,
            "GatewayService",
            6,
            further_ports={"remoting_address": 10, "grpc_address": 11},
            well_known_ports={"remoting_address": 9876, "grpc_address": 8081},
            needed_settings=("remoting_address", "grpc_address"),
            colour="bright_yellow",
        ),
        RegisteredService(
            TIER, "TierService", 7, needed_settings=("target",), follows=True, colour="bright_blue"
        ),
        RegisteredService(
            AGENT, "AgentService", 9, needed_settings=("store",), colour="bright_magenta"
        ),
        RegisteredService(
            CONSOLE,
            "ConsoleService",
            12,
            further_ports={"http_address": 13},
            well_known_ports={"http_address": 10980},
            needed_settings=("http_address",),
            packages=("starlette", "uvicorn", "jinja2", "python_multipart"),
            colour="bright_green",
        ),
    )
}
"""By name, in the order of their ports."""

SERVICES = tuple(REGISTER)
ESSENTIAL = tuple(name for name, service in REGISTER.items() if service.essential)
LARGEST_PORT_OFFSET = max(
    offset for one in REGISTER.values() for offset in (one.port_offset, *one.further_ports.values())
)


def processes(names: Iterable[str]) -> list[tuple[str, ...]]:
    """The services of a whole broker by the processes that run them: the light ones in one."""
    wanted = tuple(names)
    light = tuple(name for name in wanted if REGISTER[name].light)
    return [light if name in light[:1] else (name,) for name in wanted if name not in light[1:]]
