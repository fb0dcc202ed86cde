"""Whether a storage does what manifests rest on: asked once, when it is opened for writing."""

from stratamq.errors import ConfigurationError
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Create,
    Delete,
    Load,
    Procedure,
    Swap,
    SwapLostError,
    ask,
)

PROBES = "stratamq-probe"


def probe(attempt: str) -> Procedure[None]:
    """ConfigurationError unless of two creates, and of two swaps at one version, one is refused.

    `attempt` is a name that no other process uses: its object is deleted in the end.
    """
    path = f"{PROBES}/{attempt}"
    missing = yield from _missing(path)
    yield from ask(Delete(path))
    if missing:
        raise ConfigurationError(
            [
                f"the object store does not support {missing}. Two writers would overwrite each "
                "other's manifests, so that this tier is not used: take a store with conditional "
                "writes (AWS S3, Google Cloud Storage, Azure, MinIO), or a newer release of it"
            ]
        )


def _missing(path: str) -> Procedure[str]:
    """What the storage does not do; "" when it does all."""
    first = yield from ask(Create(path, b"first"))
    try:
        yield from ask(Create(path, b"second"))
    except AlreadyThereError:
        pass
    else:
        return "If-None-Match: it overwrote an object that was to be created"
    second = yield from ask(Swap(path, b"third", first))
    try:
        yield from ask(Swap(path, b"fourth", first))
    except SwapLostError:
        pass
    else:
        return "If-Match: it replaced an object that had another version"
    try:
        found = yield from ask(Load(path))
    except AbsentError:
        found = None
    if found != (b"third", second):
        return "reading what was written: it answered with another content or version"
    return ""
