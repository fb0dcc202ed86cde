"""Who leads a shard of three members with agents, and faults of its containers."""

from collections.abc import Callable, Collection

from stratamq.client import Election
from stratamq.errors import StrataError
from stratamq.formats.log_state import Role
from tests.compose.load import Load, keys_of, lost
from tests.compose.stack import A, Stack, until

CALL_S = 5.0
"""For what is asked again anyhow."""


def election(stack: Stack, member: str) -> Election | None:
    """As that member's agent knows it; None when it does not answer."""
    try:
        with stack.client(member, timeout_s=CALL_S, retry_timeout_s=CALL_S) as client:
            return client.admin.election()
    except StrataError:
        return None


def is_served(stack: Stack, member: str) -> bool:
    """It is a master that takes messages, and has a slave that has everything."""
    try:
        with stack.client(member, timeout_s=CALL_S, retry_timeout_s=CALL_S) as client:
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


def leader_of(stack: Stack, asked: Collection[str] = A) -> str:
    """The member of `asked` that serves as the leader of its shard. Waits for one."""

    def found() -> list[str]:
        states = (election(stack, member) for member in asked)
        named = [state.leader for state in states if state and state.leader]
        return [member for member in named[:1] if member in asked and is_served(stack, member)]

    (member,) = until(found, f"a leader of {', '.join(asked)} of {stack.name}")
    return member


def others_of(member: str) -> list[str]:
    """The other members of its shard."""
    return [f"{member[0]}{number}" for number in "123" if number != member[1]]


def all_follow(stack: Stack, leader: str) -> None:
    """Both others are its slaves, and have everything; every agent names the same leader."""

    def in_step() -> bool:
        with stack.client(leader) as client:
            slaves = client.admin.replication_state().slaves
        return sum(one.connected and one.counts and not one.lag_bytes for one in slaves) == 2

    until(in_step, "two slaves that have everything")
    until(
        lambda: all(
            state is not None and state.leader == leader
            for state in (election(stack, one) for one in (leader, *others_of(leader)))
        ),
        "all to know who leads",
    )


def term_of(stack: Stack, member: str) -> int:
    with stack.client(member) as client:
        return client.admin.election().term


def each_is_read_once(stack: Stack, load: Load, member: str) -> None:
    """What was acknowledged, by the broker of that member."""
    assert load.acknowledged
    assert lost(stack, load, member) == set()
    keys = keys_of(stack, load.topic, member)
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
    """Container and volume are gone; `up` makes empty ones."""
    (service,) = services
    stack.run("kill", "-s", "SIGKILL", service)
    stack.run("rm", "--force", service)
    stack.remove_volume(service)
    return stack.up


def _start(stack: Stack, services: list[str]) -> None:
    _end(stack, services, lambda: stack.run("start", *services))


def _end(stack: Stack, services: list[str], action: Callable[[], object]) -> None:
    action()
    for service in services:
        stack.until_healthy(service)
