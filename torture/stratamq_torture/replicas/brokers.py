"""Two brokers of one name as real processes, either of which may be the master.

    with Brokers(directory, settings, Role.SYNC_MASTER) as brokers:
        brokers.start()
        brokers.promote("b")
        brokers.serves("b")

Each is reached by the other through a wire of its own, whose address stays when its processes are
started again. Nothing here sleeps for a while and hopes; what does not come is a
BrokersFailedError with the states of both.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from stratamq.client import Client, LogState, Promotion, ReplicationState, Role, connect
from stratamq.errors import StrataError, UnavailableError
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, HA, INDEX
from stratamq_torture.processes.services import DEADLINE_S, Services, directory_names, until
from stratamq_torture.processes.wire import NOWHERE, Wire
from stratamq_torture.trial import TrialFailedError

NAMES = ("a", "b")
"""The first is the configured master, the other its slave."""
ROOMS = (COMMITLOG, DISPATCHER, INDEX, HA)
FIRST = (COMMITLOG, HA)
"""Those of them that serve while a master waits for its peers."""
MASTERS = (Role.SYNC_MASTER, Role.ASYNC_MASTER)
TIMEOUT_S = 20.0
LOOK_S = 0.05

T = TypeVar("T")


class BrokersFailedError(TrialFailedError):
    """Something that both brokers owe did not come; the sentence has their states."""


class Broker:
    """One of the two: its processes, its wire, and a client of it that outlives both."""

    def __init__(
        self,
        directory: Path,
        name: str,
        settings: Iterable[str],
        wire: Wire,
        rooms: Sequence[str] = ROOMS,
    ) -> None:
        self.name = name
        self._rooms = rooms
        self.root = directory / name
        self.wire = wire
        self.root.mkdir(parents=True)
        self.services = Services(self.root, directory / f"logs-of-{name}", settings)
        self.client: Client = connect(self.root, timeout_s=TIMEOUT_S)

    def replication(self) -> ReplicationState | None:
        """None while it does not know itself."""
        return _unless_away(self.client.admin.replication_state)

    def log(self) -> LogState | None:
        """None while it is being opened."""
        return _unless_away(self.client.log_state)

    def start(self) -> None:
        """Every process, and a wire that leads here. A master that waits for its peers shows
        nothing yet, and its dispatcher serves later."""
        for room in self._rooms:
            self.services.spawn(room)
        for room in FIRST:
            self.services.wait_ready(room)
        self.reachable()
        for room in self._rooms:
            if room not in FIRST:
                self.services.wait_announced(room)

    def reachable(self) -> None:
        """The wire leads to where its replication listens now."""
        listening = ""

        def listens() -> bool:
            nonlocal listening
            state = self.replication()
            listening = state.listening_address if state is not None else ""
            return bool(listening)

        if not until(listens, DEADLINE_S, LOOK_S):
            raise BrokersFailedError(f"{self.name} did not report where its replication listens")
        self.wire.lead_to(listening)

    def unreachable(self) -> None:
        self.wire.lead_to(NOWHERE)
        self.wire.cut()

    def kill(self) -> None:
        """Power and network of a machine at once; what it has written stays."""
        self.unreachable()
        self.services.kill_all()

    def aside(self) -> int:
        """How many times something was cut from its log, and kept."""
        return len(list((self.root / "stratamq" / "aside").glob("commitlog-*")))

    def segments(self) -> dict[str, bytes]:
        """The log's files; one that was made ahead and holds nothing does not count."""
        directory = self.root / "commitlog"
        contents = {name: (directory / name).read_bytes() for name in directory_names(directory)}
        return {name: raw for name, raw in contents.items() if raw.strip(b"\0")}


class Brokers:
    """`settings` are those of both, `service.setting=value`; `role` is what a master is; `rooms`:
    the log and the replication among them."""

    def __init__(
        self,
        directory: Path,
        settings: Iterable[str],
        role: Role,
        rooms: Sequence[str] = ROOMS,
    ) -> None:
        self.role = role
        wires = {name: Wire(NOWHERE) for name in NAMES}
        members = ",".join(f"{name}={wire.address}" for name, wire in wires.items())
        common = [
            *settings,
            "commitlog.wait_for_peers=true",
            "ha.replication_address=127.0.0.1:0",
            "ha.reconnect_longest_ms=200",
            "ha.metadata_interval_ms=200",
            f"ha.members={members}",
        ]
        first = wires[NAMES[0]].address
        own = {
            NAMES[0]: ["commitlog.broker_id=0", f"commitlog.role={role.name}"],
            NAMES[1]: ["commitlog.broker_id=1", "commitlog.role=SLAVE", f"ha.master={first}"],
        }
        self._all = {
            name: Broker(
                directory, name, [*common, f"ha.member={name}", *own[name]], wires[name], rooms
            )
            for name in NAMES
        }
        self._stack = ExitStack()

    def __getitem__(self, name: str) -> Broker:
        return self._all[name]

    def other(self, name: str) -> Broker:
        return self._all[NAMES[1 - NAMES.index(name)]]

    @property
    def kills(self) -> int:
        """Processes that died by SIGKILL."""
        return sum(broker.services.kills for broker in self._all.values())

    def start(self) -> None:
        """Both, until the master takes messages and knows its slave."""
        for broker in self._all.values():
            broker.start()
        self.serves(NAMES[0])

    def promote(self, name: str) -> Promotion:
        """What `stratamq replica promote` does; StrataError has the reason why not. After an
        ASYNC_MASTER, which acknowledges what no slave has, with `--force`."""
        return self[name].client.admin.promote(self.role, force=self.role is Role.ASYNC_MASTER)

    def serves(self, name: str) -> None:
        """Until that master takes messages, the other follows it, and its log counts the slave."""
        broker, slave = self[name], self.other(name)

        def takes() -> bool:
            log = broker.log()
            return log is not None and log.role in MASTERS and log.writable

        self.wait(takes, f"{name} takes messages as a master")

        def follows() -> bool:
            state, ours = slave.replication(), slave.log()
            theirs = broker.log()
            return (
                state is not None
                and ours is not None
                and theirs is not None
                and ours.role is Role.SLAVE
                and state.following is not None
                and state.following.connected
                and ours.term == theirs.term
            )

        self.wait(follows, f"{slave.name} has stepped down and follows {name}")

        def counted() -> bool:
            log = broker.log()
            return log is not None and any(one.connected and one.counts for one in log.replicas)

        self.wait(counted, f"{name} counts its slave")

    def ends_alike(self) -> None:
        """Until both logs end at the same offset: the master at rest, its slave has everything."""

        def alike() -> bool:
            logs = [broker.log() for broker in self._all.values()]
            return len({log and log.appended_offset for log in logs}) == 1 and None not in logs

        self.wait(alike, "both logs end at the same offset")

    def difference(self) -> str:
        """How the files of the two logs differ; empty when they are the same bytes."""
        ours, theirs = (self._all[name].segments() for name in NAMES)
        if sorted(ours) != sorted(theirs):
            return f"{NAMES[0]} has the segments {sorted(ours)}, {NAMES[1]} {sorted(theirs)}"
        for name, content in ours.items():
            if theirs[name] != content:
                pairs = enumerate(zip(content, theirs[name], strict=False))
                at = next(
                    (i for i, (x, y) in pairs if x != y), min(len(content), len(theirs[name]))
                )
                return f"segment {name} of the two differs from byte {at} on"
        return ""

    def __enter__(self) -> "Brokers":
        for broker in self._all.values():
            self._stack.callback(broker.wire.close)
            self._stack.enter_context(broker.services)
            self._stack.callback(broker.client.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        """BrokersFailedError when it takes longer than any of these should."""
        if not until(happened, DEADLINE_S, LOOK_S):
            stood = "; ".join(f"{name}: {_state_of(self._all[name])}" for name in NAMES)
            raise BrokersFailedError(f"not within {DEADLINE_S:.0f} s: {what} ({stood})")


def _unless_away(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except UnavailableError:
        return None


def _state_of(broker: Broker) -> str:
    """One broker's own words, for people."""
    try:
        log, state = broker.client.log_state(), broker.client.admin.replication_state()
    except StrataError as error:
        return str(error)
    role = log.role.name if log.role is not None else "no role"
    problems = [log.not_writable_reason, log.held_reason, state.problem]
    if state.following is not None:
        problems.append(state.following.problem)
    reasons = ", ".join(problem for problem in problems if problem)
    return f"{role} of term {log.term}, ends at {log.appended_offset}" + (
        f", {reasons}" if reasons else ""
    )
