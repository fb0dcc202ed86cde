"""Which brokers a tier has."""

from stratamq.tier.containers.place import cluster_folder
from stratamq.tier.driver.calls import Folders, Procedure, ask


def brokers_of(cluster: str) -> Procedure[list[str]]:
    """Names, in order; none for a cluster that it does not have."""
    return sorted((yield from ask(Folders(cluster_folder(cluster)))))
