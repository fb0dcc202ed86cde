"""The election store that a setting names.

etcd://HOST:PORT[,HOST:PORT…][/PREFIX]      key PREFIX/CLUSTER, PREFIX `stratamq` by default
"""

from stratamq.election.etcd import EtcdStore
from stratamq.election.store import ElectionStore
from stratamq.errors import ConfigurationError
from stratamq.rpc.address import split_address

DEFAULT_PREFIX = "stratamq"
ETCD = "etcd"


def store_fault(setting: str) -> str:
    """Why it names no store; "": it does."""
    kind, divider, rest = setting.partition("://")
    where, _, prefix = rest.partition("/")
    if kind != ETCD or not divider or not where:
        return f"{setting!r}: etcd://HOST:PORT[,HOST:PORT…] is expected"
    if "/" in prefix:
        return f"{setting!r}: at most one name may follow the address"
    for endpoint in where.split(","):
        try:
            split_address(endpoint)
        except ConfigurationError as error:
            return f"{setting!r}: {error}"
    return ""


def open_store(setting: str, cluster: str, timeout_s: float) -> ElectionStore:
    """For the members named `cluster`. ConfigurationError."""
    if fault := store_fault(setting):
        raise ConfigurationError([f"agent.store: {fault}"])
    where, _, prefix = setting.partition("://")[2].partition("/")
    return EtcdStore(where.split(","), f"{prefix or DEFAULT_PREFIX}/{cluster}", timeout_s)
