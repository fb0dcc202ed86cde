"""One writer a broker's tier: the one with the highest epoch."""

from stratamq.errors import NotWritableError
from stratamq.formats.tier_manifest import Epoch
from stratamq.formats.tier_progress import decode_writer, encode_writer
from stratamq.tier.containers.place import writer_path
from stratamq.tier.driver.calls import AbsentError, Load, Procedure, Swap, SwapLostError, ask

_ATTEMPTS = 10


class FencedError(NotWritableError):
    """Another writer, of a later epoch, writes this broker's tier: this one must end."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="fenced")

    @classmethod
    def of_conflicts(cls, path: str) -> "FencedError":
        return cls(f"{path}: too many conflicts with other writers")


class PutBackError(FencedError):
    """The tier is an older copy of what it was, or an object of it is: its writer ends, and takes
    the tier over again."""

    @classmethod
    def of_revision(cls, path: str, found: int, known: int) -> "PutBackError":
        return cls(
            f"{path} is of revision {found}, and was of revision {known}: the tier, or this object "
            "alone, was put back to an older copy"
        )


def claim(cluster: str, broker: str, generation: int, above: Epoch = (0, 0)) -> Procedure[Epoch]:
    """An epoch of its own for a writer of the log's generation `generation`, above `above`, which
    is known to have been given. FencedError when a writer of a later generation has claimed the
    tier."""
    path = writer_path(cluster, broker)
    for _ in range(_ATTEMPTS):
        try:
            raw, version = yield from ask(Load(path))
            held = decode_writer(raw)
        except AbsentError:
            held, version = (0, 0), None
        if held[0] > generation:
            raise FencedError(
                f"{path}: a writer of the log's generation {held[0]} has claimed the tier, and "
                f"this log is of generation {generation}"
            )
        started = max(
            starts for begun, starts in (held, above, (generation, 0)) if begun == generation
        )
        epoch = (generation, started + 1)
        try:
            yield from ask(Swap(path, encode_writer(epoch), version))
        except SwapLostError:
            continue
        return epoch
    raise FencedError(f"{path}: too many conflicts with other writers' claims")
