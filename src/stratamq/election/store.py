"""What an agent needs of a store: to read one value, and to replace the one that it has read."""

from dataclasses import dataclass
from typing import Protocol

from stratamq.formats.election_state import ElectionState

ABSENT = ""
"""The revision of a value that is not there yet."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`state` None: nothing is there. `revision` changes with every change of the value."""

    state: ElectionState | None
    revision: str


class ElectionStore(Protocol):
    """Each call ends within the time that the store was opened with. Of one event loop."""

    async def read(self) -> Snapshot:
        """As of now: never a value older than one that was answered before. UnavailableError;
        CorruptRecordError for a value that is none."""

    async def swap(self, state: ElectionState, revision: str) -> str | None:
        """The new revision, if the value was still of `revision`; None: another was first.
        UnavailableError: not known whether it was done."""

    async def close(self) -> None: ...
