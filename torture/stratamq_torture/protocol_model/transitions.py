"""What every step is made of: a state with another member, connection or count."""

from collections.abc import Callable, Iterator

from stratamq_torture.protocol_model.state import BOUNDED, Connection, Member, State, Violation

NAMES = "ABCD"
_PLACE = {name: at for at, name in enumerate(BOUNDED)}
Step = tuple[str, State]
"""What happened, and the state then."""


def step(
    label: str, do: Callable[..., State | None], state: State, *more: object
) -> Iterator[Step]:
    """What `do` makes of the state, if it can and if that is another one."""
    try:
        after = do(state, *more)
    except Violation as violation:
        raise Violation(*violation.args, label) from None
    if after is not None and after != state:
        yield label, after


def with_member(state: State, number: int, member: Member) -> State:
    members = state.members
    if members[number] is member:
        return state
    return state._replace(members=(*members[:number], member, *members[number + 1 :]))


def with_connection(state: State, old: Connection, new: Connection) -> State:
    connections = [new if one is old else one for one in state.connections]
    return state._replace(connections=ordered(connections))


def ordered(connections: list[Connection]) -> tuple[Connection, ...]:
    return tuple(sorted(connections))


def left(state: State, name: str) -> bool:
    """Whether it may happen once more."""
    return state.left[_PLACE[name]] > 0


def spend(state: State, name: str) -> State:
    """It happens once more."""
    left = list(state.left)
    left[_PLACE[name]] -= 1
    return state._replace(left=tuple(left))
