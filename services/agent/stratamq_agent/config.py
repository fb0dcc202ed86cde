"""Settings of the agent; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from stratamq.election.opening import store_fault
from stratamq.service.config import FollowerConfig, setting


@dataclass(frozen=True)
class AgentConfig(FollowerConfig):
    """Of the agent beside one member's broker; the same on all members."""

    store: str = setting(
        "",
        unit="URL",
        doc="Where the members agree on who leads: `etcd://HOST:PORT,HOST:PORT`, or "
        "`kubernetes://NAMESPACE` for a Lease (in a pod without the namespace: the pod's). "
        "Empty: no agent is started, and promotions are an operator's.",
    )
    ttl_ms: int = setting(
        30_000,
        unit="ms",
        minimum=300,
        maximum=3_600_000,
        doc="A leader that has not renewed for so long is replaced. An ASYNC_MASTER without an "
        "agent takes messages for 0.95 of it.",
    )
    loop_interval_ms: int = setting(
        10_000,
        unit="ms",
        minimum=50,
        maximum=600_000,
        doc="How often the leader renews, and others look.",
    )
    retry_timeout_ms: int = setting(
        10_000,
        unit="ms",
        minimum=50,
        maximum=600_000,
        doc="How long a call to the store may take, its repetitions included.",
    )

    pod: str = setting(
        "",
        unit="name",
        doc="In Kubernetes this broker's pod: its label `stratamq-role` is kept as its role, "
        "`master` or `slave`, for Services to select. Empty: no label is written.",
    )

    def faults(self) -> Iterable[str]:
        if self.store and (fault := store_fault(self.store)):
            yield f"store: {fault}"
        if self.loop_interval_ms + 2 * self.retry_timeout_ms > self.ttl_ms:
            yield (
                f"loop_interval_ms + 2 × retry_timeout_ms is {self.loop_interval_ms} + 2 × "
                f"{self.retry_timeout_ms}, and must not be above ttl_ms ({self.ttl_ms}): a leader "
                "whose store is slow once would be replaced"
            )
