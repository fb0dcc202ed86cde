"""Where this store's tier was written to, and how far it had come: an empty one in its place is no
new one, but a directory that is not mounted, or another prefix; an older one was put back.

    stratamq/tier.json     storage, cluster and broker, as set when the tier had something;
                           revision and epoch of its progress object, as it was seen last
"""

from stratamq.errors import NotWritableError
from stratamq.files.metadata import JsonObject, MetadataFile
from stratamq.files.port import Files
from stratamq.formats.store_paths import WRITTEN_TIER_PATH
from stratamq.formats.tier_manifest import Epoch
from stratamq.formats.tier_progress import TierProgress
from stratamq_tier.config import TierConfig

Seen = tuple[int, Epoch]
"""Revision and epoch of a progress object."""


def remember(files: Files, config: TierConfig, broker: str, known: TierProgress) -> None:
    """Durable on return: before the log may delete what is in the tier by then. Blocking."""
    record = MetadataFile(files, WRITTEN_TIER_PATH)
    seen = {"revision": known.revision, "epoch": list(known.epoch)}
    document = _names(config, broker) | seen
    if record.load() != document:
        record.store(document)


def recall(files: Files, config: TierConfig, broker: str) -> Seen | None:
    """What was seen last of this tier; None: nothing. Blocking."""
    found = MetadataFile(files, WRITTEN_TIER_PATH).load(keep_aside=False)
    if not _is_of(found, config, broker) or found is None:
        return None
    revision, epoch = found.get("revision"), found.get("epoch")
    if not isinstance(revision, int) or not isinstance(epoch, list) or len(epoch) != 2:
        return None
    return revision, (int(epoch[0]), int(epoch[1]))


def is_older(known: TierProgress, seen: Seen | None) -> bool:
    """Whether a tier of this progress is an older copy of the one that was seen: the revision of
    the object only grows, and no two of its states have the same."""
    if seen is None:
        return False
    return (known.revision, known.epoch) != seen and known.revision <= seen[0]


def require_new(files: Files, config: TierConfig, broker: str) -> None:
    """NotWritableError when the tier, in which nothing was found, was written from this store.
    Blocking."""
    if _is_of(MetadataFile(files, WRITTEN_TIER_PATH).load(keep_aside=False), config, broker):
        raise NotWritableError(
            f"{config.target} has nothing of the broker {broker}, and this store has put messages "
            "there: is the directory mounted, and the prefix the same? To start an empty "
            f"tier, remove {WRITTEN_TIER_PATH} of the store",
            reason="tier not found",
        )


def _is_of(found: JsonObject | None, config: TierConfig, broker: str) -> bool:
    names = _names(config, broker)
    return found is not None and all(found.get(name) == value for name, value in names.items())


def _names(config: TierConfig, broker: str) -> JsonObject:
    return {"storage": config.target, "cluster": config.cluster, "broker": broker}
