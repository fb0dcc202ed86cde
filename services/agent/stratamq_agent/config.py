"""Settings of the agent; `docs/configuration.md` is made from them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stratamq.election.opening import is_over_tls, store_fault
from stratamq.rpc.credentials import Credentials, TlsFiles
from stratamq.service.config import FollowerConfig, setting


@dataclass(frozen=True)
class AgentConfig(FollowerConfig):
    """Settings of the agent beside one member's broker; the same on all members."""

    store: str = setting(
        "",
        unit="URL",
        doc="Election store of the members: `etcd://HOST:PORT,HOST:PORT`, over TLS "
        "`etcds://HOST:PORT,HOST:PORT`, or `kubernetes://NAMESPACE` for a Lease (in a pod without "
        "the namespace: the pod's). Empty: no agent is started, and only operators promote.",
    )
    etcd_cacert: Path | None = setting(
        None,
        unit="path",
        doc="PEM file with the authorities that sign etcd's certificate; required for `etcds://` "
        "(`--cacert` of etcdctl).",
    )
    etcd_cert: Path | None = setting(
        None,
        unit="path",
        doc="PEM file with the certificate and chain to present to etcd, if it requires one "
        "(`--client-cert-auth`). With etcd's authentication enabled, its common name is the user.",
    )
    etcd_key: Path | None = setting(
        None, unit="path", doc="PEM file with the private key of `etcd_cert`, not encrypted."
    )
    ttl_ms: int = setting(
        30_000,
        unit="ms",
        minimum=300,
        maximum=3_600_000,
        doc="Time without renewal after which a leader is replaced. An ASYNC_MASTER without an "
        "agent takes messages for 0.95 of it.",
    )
    loop_interval_ms: int = setting(
        10_000,
        unit="ms",
        minimum=50,
        maximum=600_000,
        doc="Interval at which the leader renews, and the others check.",
    )
    retry_timeout_ms: int = setting(
        10_000,
        unit="ms",
        minimum=50,
        maximum=600_000,
        doc="Time limit of a call to the store, including retries.",
    )

    pod: str = setting(
        "",
        unit="name",
        doc="This broker's pod in Kubernetes: its label `stratamq-role` is set to its role, "
        "`master` or `slave`, for Services to select. Empty: no label is written.",
    )

    def faults(self) -> Iterable[str]:
        if self.store and (fault := store_fault(self.store)):
            yield f"store: {fault}"
        yield from self._tls_faults()
        if self.loop_interval_ms + 2 * self.retry_timeout_ms > self.ttl_ms:
            yield (
                f"loop_interval_ms + 2 × retry_timeout_ms is {self.loop_interval_ms} + 2 × "
                f"{self.retry_timeout_ms}, and must not be above ttl_ms ({self.ttl_ms}): a leader "
                "whose store is slow once would be replaced"
            )

    def _tls_faults(self) -> Iterable[str]:
        over_tls = is_over_tls(self.store)
        if over_tls and self.etcd_cacert is None:
            yield (
                "etcd_cacert: a store at etcds:// needs the PEM file with the authority of etcd's "
                "certificates"
            )
        if (self.etcd_cert is None) is not (self.etcd_key is None):
            yield "etcd_cert and etcd_key belong together: set both"
        if not over_tls and (self.etcd_cacert or self.etcd_cert or self.etcd_key):
            yield "store: etcd_cacert, etcd_cert and etcd_key are for etcds://"

    def etcd_credentials(self) -> Credentials:
        """ConfigurationError when the files cannot be used."""
        if not is_over_tls(self.store):
            return Credentials()
        files = TlsFiles(self.etcd_cacert, self.etcd_cert, self.etcd_key)
        files.read()
        return Credentials(files)
