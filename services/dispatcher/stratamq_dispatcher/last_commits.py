"""Who committed last for a group, and when: for people who look for its readers. In memory only.

As many entries as the table of offsets has groups with topics.
"""

from dataclasses import dataclass

from stratamq.files.port import Clock
from stratamq_dispatcher.consumer_offsets import GroupTopic


@dataclass(frozen=True, slots=True)
class LastCommit:
    """`timestamp_ms` 0: none since this service started."""

    timestamp_ms: int = 0
    client: str = ""


class LastCommits:
    """Belongs to the engine's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[GroupTopic, LastCommit] = {}

    def note(self, group: str, topics: set[str], client: str) -> None:
        commit = LastCommit(self._clock.wall_ms(), client)
        self._last.update({(group, topic): commit for topic in topics})

    def forget(self, group: str, topic: str = "") -> None:
        """With "" of all topics."""
        gone = [key for key in self._last if key[0] == group and topic in ("", key[1])]
        for key in gone:
            del self._last[key]

    def of(self, group: str, topic: str) -> LastCommit:
        return self._last.get((group, topic), LastCommit())
