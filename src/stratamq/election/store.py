"""What an agent needs of a store: to read one value, and to replace the one that it has read."""

from dataclasses import dataclass
from typing import Protocol

from stratamq.formats.election_state import ElectionState

ABSENT = ""
"""The revision of a value that is not there yet."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """`state` None: nothing is there. `revision` changes with every change of the value."""

    state: ElectionState | None
    revision: str


class ElectionStore(Protocol):
    """Each call ends within the time that the store was opened with. Of one event loop."""

    async def read(self) -> StoredState:
        """Read the current value: never one older than a value that was returned before. Raises
        UnavailableError, and CorruptRecordError for a value that cannot be decoded."""

    async def swap(self, state: ElectionState, revision: str) -> str | None:
        """The new revision, if the value was still of `revision`; None: another was first.
        UnavailableError: not known whether it was done."""

    async def close(self) -> None: ...
