"""What a shard's tests ask of it after a load."""

from tests.cluster.shard import Acknowledged, Shard
from tests.support.waiting import until

TTL_S = 30
LONGEST_S = {"handover": 2 + 8, "lost": TTL_S + 10 + 10}
"""Of an append; with room for a machine that does other work."""


def healed(shard: Shard) -> None:
    shard.until_ready()
    until(lambda: len(shard.masters()) == 1, "one pod is the Service's", deadline_s=120)


def judge(shard: Shard, topic: str, found: Acknowledged, longest_s: float) -> None:
    """Everything confirmed is there, nothing twice, and no append took longer."""
    print(f"{topic}: {found}")
    stored = shard.stored(topic)
    assert len(stored) == len(set(stored))
    assert found.confirmed <= set(stored)
    assert found.longest_ms < longest_s * 1000
