"""Who leads a stack of three members with agents, and faults of its containers."""

from collections.abc import Callable, Iterable

from stratamq.client import Election
from stratamq.errors import StrataError
from stratamq.formats.broker_role import Role
from tests.compose.load import Load, keys_of, lost
from tests.compose.stack import SIDES, Stack, until

MEMBERS = {"": "broker", "replica-": "replica", "replica2-": "replica2"}
SIDE_OF = {member: side for side, member in MEMBERS.items()}
CALL_S = 5.0
"""For what is asked again anyhow."""


def election(stack: Stack, side: str) -> Election | None:
    """As the agent of that side knows it; None when it does not answer."""
    try:
        with stack.client(side, timeout_s=CALL_S, patience_s=CALL_S) as client:
            return client.admin.election()
    except StrataError:
        return None


def is_served(stack: Stack, side: str) -> bool:
    """It is a master that takes messages, and has a slave that has everything."""
    try:
        with stack.client(side, timeout_s=CALL_S, patience_s=CALL_S) as client:
            state = client.log_state()
            return (
                state.role is Role.SYNC_MASTER
                and state.writable
                and any(
                    one.connected and one.counts and not one.lag_bytes
                    for one in client.admin.replication_state().slaves
                )
            )
    except StrataError:
        return False


def leader_of(stack: Stack, asked: Iterable[str] = SIDES) -> str:
    """The side of `asked` that serves as the leader of all. Waits for one."""

    def found() -> list[str]:
        states = (election(stack, side) for side in asked)
        named = [SIDE_OF[state.leader] for state in states if state and state.leader]
        return [side for side in named[:1] if side in asked and is_served(stack, side)]

    (side,) = until(found, f"a leader of {stack.name}")
    return side


def all_follow(stack: Stack, leader: str) -> None:
    """Both others are its slaves, and have everything; every agent names the same leader."""

    def in_step() -> bool:
        with stack.client(leader) as client:
            slaves = client.admin.replication_state().slaves
        return sum(one.connected and one.counts and not one.lag_bytes for one in slaves) == 2

    until(in_step, "two slaves that have everything")
    until(
        lambda: all(
            state is not None and state.leader == MEMBERS[leader]
            for state in (election(stack, side) for side in SIDES)
        ),
        "all to know who leads",
    )


def term_of(stack: Stack, side: str) -> int:
    with stack.client(side) as client:
        return client.admin.election().term


def containers_of(stack: Stack, side: str) -> list[str]:
    return [side + room for room in stack.shape.rooms]


def each_is_read_once(stack: Stack, load: Load, side: str) -> None:
    """What was acknowledged, by the broker of that side."""
    assert load.acknowledged
    assert lost(stack, load, side) == set()
    keys = keys_of(stack, load.topic, side)
    assert len(keys) == len(set(keys))


# --- faults: each returns what ends it ---


def kill(stack: Stack, services: list[str]) -> Callable[[], None]:
    """They stay dead until they are started."""
    stack.run("kill", "-s", "SIGKILL", *services)
    return lambda: _start(stack, services)


def stop(stack: Stack, services: list[str]) -> Callable[[], None]:
    stack.run("stop", *services)
    return lambda: _start(stack, services)


def pause(stack: Stack, services: list[str]) -> Callable[[], None]:
    stack.run("pause", *services)
    return lambda: _end(stack, services, lambda: stack.run("unpause", *services))


def cut_off(stack: Stack, services: list[str]) -> Callable[[], None]:
    for service in services:
        stack.disconnect(service)

    def connect() -> None:
        for service in services:
            stack.connect(service)

    return lambda: _end(stack, services, connect)


def lose_volume(stack: Stack, services: list[str]) -> Callable[[], None]:
    """Containers and volume are gone; `up` makes empty ones."""
    side = services[0].removesuffix(stack.shape.rooms[0])
    stack.run("kill", "-s", "SIGKILL", *services)
    stack.run("rm", "--force", *services)
    stack.remove_volume(f"{side}data")
    return stack.up


def _start(stack: Stack, services: list[str]) -> None:
    _end(stack, services, lambda: stack.run("start", *services))


def _end(stack: Stack, services: list[str], action: Callable[[], object]) -> None:
    action()
    for service in services:
        stack.until_healthy(service)
