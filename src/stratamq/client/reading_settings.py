"""How a reader reads, apart from what: the same for all brokers that it reads from."""

from dataclasses import dataclass

SHORTEST_COMMIT_INTERVAL_S = 0.01


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """See `AsyncClient.consume`. `client_id`: the reader's name among the members of its group.
    `acknowledged`: nothing counts as taken but what is acknowledged."""

    group: str | None = None
    client_id: str = ""
    follow: bool = False
    refresh_s: float = 30.0
    commit_interval_s: float = 5.0
    acknowledged: bool = False

    def __post_init__(self) -> None:
        shortest = max(self.commit_interval_s, SHORTEST_COMMIT_INTERVAL_S)
        object.__setattr__(self, "commit_interval_s", shortest)


ALONE = ReadingSettings()
"""Of a reader without a group that reads what is there."""
