"""Settings of the replication service; `docs/configuration.md` is made from them."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.errors import ConfigurationError
from stratamq.formats.generation_number import SLOTS
from stratamq.formats.replication import MAX_TRANSFER_BYTES, ROCKETMQ_TRANSFER_BYTES
from stratamq.rpc.address import split_address
from stratamq.service.config import FollowerConfig, setting
from stratamq_ha.master_connection import MasterSettings
from stratamq_ha.slave_connection import SlaveSettings

KIB, MIB = 1 << 10, 1 << 20

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class HaConfig(FollowerConfig):
    """One broker's replication, master or slave: the log's role decides which."""

    replication_address: str = setting(
        "127.0.0.1:10912",
        unit="host:port",
        rocketmq="haListenPort",
        doc="Address at which a master's slaves connect; port 0 takes a free port. The default of "
        "`stratamq up` is `--port` + 8.",
    )
    allowed_slaves: tuple[str, ...] = setting(
        (),
        unit="",
        doc="Addresses or networks (`10.0.0.0/8`) from which slaves may connect. Empty: from "
        "anywhere, or, with access.file and without TLS, from nowhere. Without TLS the protocol "
        "has no other protection.",
    )
    master: str = setting(
        "",
        unit="host:port",
        rocketmq="haMasterAddress",
        doc="Replication address of a slave's master.",
    )
    master_kind: str = setting(
        "STRATAMQ",
        unit="",
        choices=("STRATAMQ", "ROCKETMQ"),
        doc="Software of the master. Histories are compared between StrataMQ brokers only.",
    )
    sync_from: str = setting(
        "FIRST",
        unit="",
        choices=("FIRST", "LAST"),
        rocketmq="syncFromLastFile",
        doc="Where an empty slave of a StrataMQ master begins: at the first segment, or, as "
        "RocketMQ's do, at the last.",
    )
    members: tuple[str, ...] = setting(
        (),
        unit="NAME=host:port",
        doc="The members of this broker's cluster, itself included, with their replication "
        "addresses: at most 8, the same and in the same order on all. A master asks the others "
        "whether one was promoted before it takes messages, and every second; a slave finds its "
        "master among them; a promotion needs their promises. Their allow-lists must have this "
        "broker. None: a single broker, or a master with slaves that are read replicas.",
    )
    member: str = setting(
        "",
        unit="",
        doc="This broker's name among the members; empty: the one with this broker's address.",
    )
    rocketmq_slaves: tuple[str, ...] = setting(
        (),
        unit="",
        doc="IP addresses of RocketMQ slaves whose acknowledgements count towards PUT_OK of a "
        "SYNC_MASTER without members, each once; other RocketMQ slaves are not counted.",
    )
    force_master: bool = setting(
        False,
        unit="",
        doc="Take messages as a master although no other member responds. For one start only "
        "(`stratamq up --force`): do not set it in a file.",
    )
    heartbeat_ms: int = setting(
        5_000,
        unit="ms",
        minimum=10,
        maximum=3_600_000,
        rocketmq="haSendHeartbeatInterval",
        doc="Longest interval between two messages of either side.",
    )
    housekeeping_ms: int = setting(
        20_000,
        unit="ms",
        minimum=10,
        maximum=3_600_000,
        rocketmq="haHousekeepingInterval",
        doc="Time after which the connection to a silent peer is closed.",
    )
    transfer_bytes: int = setting(
        1 * MIB,
        unit="bytes",
        minimum=1,
        maximum=MAX_TRANSFER_BYTES,
        doc="Largest transfer to a StrataMQ slave; RocketMQ's get 32 KiB.",
    )
    append_bytes: int = setting(
        256 * KIB,
        unit="bytes",
        minimum=1,
        maximum=4 * MIB,
        doc="Size up to which a slave combines transfers into one append while more arrive.",
    )
    reconnect_longest_ms: int = setting(
        5_000,
        unit="ms",
        minimum=10,
        maximum=600_000,
        doc="Longest wait before a slave tries to reach its master again; the first is 50 ms.",
    )
    metadata_interval_ms: int = setting(
        2_000,
        unit="ms",
        minimum=10,
        maximum=3_600_000,
        doc="Interval at which a slave requests changed topics and consumer offsets from its "
        "StrataMQ master. RocketMQ's slaves do so every 10 s.",
    )
    stop_slaves_ms: int = setting(
        2_000,
        unit="ms",
        minimum=0,
        maximum=600_000,
        doc="Time that a stopping master waits for its slaves to have everything.",
    )
    advertised_log_address: str = setting(
        "",
        unit="host:port",
        doc="Address of this master's log for producers that ask a slave; empty: the address of "
        "the log service.",
    )

    @property
    def networks(self) -> list[Network]:
        return [ipaddress.ip_network(text, strict=False) for text in self.allowed_slaves]

    def master_settings(self, *, ours: bool) -> MasterSettings:
        """For one slave's connection."""
        return MasterSettings(
            heartbeat_ms=self.heartbeat_ms,
            housekeeping_ms=self.housekeeping_ms,
            transfer_bytes=self.transfer_bytes if ours else ROCKETMQ_TRANSFER_BYTES,
            whole_log=ours,
            notices=ours,
        )

    @property
    def slave_settings(self) -> SlaveSettings:
        return SlaveSettings(
            report_ms=self.heartbeat_ms,
            housekeeping_ms=self.housekeeping_ms,
            append_bytes=self.append_bytes,
            notices=self.master_kind == "STRATAMQ",
        )

    @property
    def named_members(self) -> list[tuple[str, str]]:
        """(name, address) in the order of the slots."""
        parts = (text.partition("=") for text in self.members)
        return [(name.strip(), address.strip()) for name, _, address in parts]

    def own_member(self, own_address: str) -> str:
        """This broker's name among the members, "" without them. ConfigurationError when it cannot
        be determined."""
        named = self.named_members
        if not named:
            return ""
        if self.member:
            return self.member
        found = [name for name, address in named if address == own_address]
        if len(found) == 1:
            return found[0]
        raise ConfigurationError(
            [
                f"ha.member must name the member that this broker is: none of them, or more "
                f"than one, has its own address, {own_address}"
            ]
        )

    def _member_faults(self) -> Iterable[str]:
        names = [name for name, _ in self.named_members]
        if len(names) > SLOTS:
            yield f"members: at most {SLOTS}, and not {len(names)}"
        if len(set(names)) != len(names) or not all(0 < len(n.encode()) <= 255 for n in names):
            yield f"members: each is NAME=HOST:PORT with a name of its own, and not {names}"
        if self.member and self.member not in names:
            yield f"member: {self.member!r} is not among the members"

    def faults(self) -> Iterable[str]:
        for text in self.allowed_slaves:
            try:
                ipaddress.ip_network(text, strict=False)
            except ValueError:
                yield f"allowed_slaves: {text!r} is neither an address nor a network"
        for text in self.rocketmq_slaves:
            try:
                ipaddress.ip_address(text)
            except ValueError:
                yield f"rocketmq_slaves: {text!r} is no IP address"
        named = [("master", self.master)] if self.master else []
        for name, address in [*named, *(("members", each) for _, each in self.named_members)]:
            try:
                split_address(address)
            except ConfigurationError as error:
                yield f"{name}: {error}"
        yield from self._member_faults()
        if self.housekeeping_ms <= self.heartbeat_ms:
            yield "housekeeping_ms must be longer than heartbeat_ms"
