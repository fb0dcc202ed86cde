"""The election store that a setting names.

etcd://HOST:PORT[,HOST:PORT…][/PREFIX]      key PREFIX/CLUSTER, PREFIX `stratamq` by default
etcds://…                                   the same over TLS, by the files of `etcd_cacert`, …
kubernetes://[NAMESPACE]                    Lease stratamq-CLUSTER, by default in the pod's
"""

from stratamq.election.etcd import EtcdStore
from stratamq.election.kubernetes import KubernetesStore, lease_name, own_namespace
from stratamq.election.store import ElectionStore
from stratamq.errors import ConfigurationError
from stratamq.files.port import Clock
from stratamq.rpc.address import split_address
from stratamq.rpc.credentials import Credentials

DEFAULT_PREFIX = "stratamq"
ETCD, ETCD_OVER_TLS, KUBERNETES = "etcd", "etcds", "kubernetes"


def store_fault(setting: str) -> str:
    """Why it names no store; "": it does."""
    kind, divider, rest = setting.partition("://")
    if kind == KUBERNETES and divider:
        return f"{setting!r}: kubernetes://NAMESPACE is expected" if "/" in rest else ""
    where, _, prefix = rest.partition("/")
    if kind not in (ETCD, ETCD_OVER_TLS) or not divider or not where:
        return (
            f"{setting!r}: etcd://HOST:PORT[,HOST:PORT…], etcds://HOST:PORT[,HOST:PORT…] or "
            "kubernetes:// is expected"
        )
    if "/" in prefix:
        return f"{setting!r}: at most one name may follow the address"
    for endpoint in where.split(","):
        try:
            split_address(endpoint)
        except ConfigurationError as error:
            return f"{setting!r}: {error}"
    return ""


def is_over_tls(setting: str) -> bool:
    return setting.startswith(f"{ETCD_OVER_TLS}://")


def open_store(
    setting: str, cluster: str, ttl_s: int, timeout_s: float, clock: Clock, etcd: Credentials
) -> ElectionStore:
    """For the members named `cluster`, whose leader renews within `ttl_s`. `etcd`: its TLS files,
    if `is_over_tls`. ConfigurationError."""
    if fault := store_fault(setting):
        raise ConfigurationError([f"agent.store: {fault}"])
    kind, _, rest = setting.partition("://")
    if kind == KUBERNETES:
        return KubernetesStore(
            rest or own_namespace(), lease_name(cluster), ttl_s, timeout_s, clock
        )
    where, _, prefix = rest.partition("/")
    key = f"{prefix or DEFAULT_PREFIX}/{cluster}"
    return EtcdStore(where.split(","), key, timeout_s, etcd)
