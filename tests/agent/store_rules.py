"""What every election store keeps to."""

from stratamq.election.store import ABSENT, ElectionStore, StoredState
from stratamq.formats.election_state import ElectionState

STATE = ElectionState("a", 8, 3, True, "b", {"a": "h:1"}, frozenset({"a=h:2"}))


async def created_once_and_replaced_by_who_has_read_it(store: ElectionStore) -> None:
    """`store`: without a value."""
    assert await store.read() == StoredState(None, ABSENT)
    first = await store.swap(STATE, ABSENT)
    assert first
    assert await store.swap(ElectionState("c"), ABSENT) is None
    assert await store.read() == StoredState(STATE, first)
    second = await store.swap(ElectionState("b"), first)
    assert second not in (first, None)
    assert await store.swap(ElectionState("c"), first) is None
    assert await store.read() == StoredState(ElectionState("b"), second)
