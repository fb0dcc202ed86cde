"""Where this store's tier was written to: one that is empty in its place later is no new one, but a
directory that is not mounted, or another prefix.

    stratamq/tier.json     storage, cluster and broker, as they were set when the tier had something
"""

from stratamq.errors import NotWritableError
from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.port import Files
from stratamq.formats.store_paths import WRITTEN_TIER_PATH
from stratamq_tier.config import TierConfig


def remember(files: Files, config: TierConfig, broker: str) -> None:
    """Durable on return. Blocking."""
    record = MetadataFile(files, WRITTEN_TIER_PATH)
    if record.load() != _names(config, broker):
        record.store(_names(config, broker))


def require_new(files: Files, config: TierConfig, broker: str) -> None:
    """NotWritableError when the tier, in which nothing was found, was written from this store.
    Blocking."""
    if MetadataFile(files, WRITTEN_TIER_PATH).load(keep_aside=False) == _names(config, broker):
        raise NotWritableError(
            f"{config.target} has nothing of the broker {broker}, and this store has put messages "
            "there: is the directory mounted, and the prefix the same? Should the tier begin "
            f"anew, without what was there, remove {WRITTEN_TIER_PATH} of the store",
            reason="tier not found",
        )


def _names(config: TierConfig, broker: str) -> JsonObject:
    return {"storage": config.target, "cluster": config.cluster, "broker": broker}
