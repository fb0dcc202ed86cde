"""How far a broker's log is in the tier, as an object beside its queues.

It is raised before messages are uploaded (`reach`) and after they are committed (`position`). So a
log that follows another one's knows, by the history that both have, whether the tier may have
messages that it does not.
"""

from collections.abc import Sequence
from dataclasses import replace

from stratamq.formats.generation_number import term_of
from stratamq.formats.tier_manifest import Epoch, Manifest
from stratamq.formats.tier_progress import (
    TierProgress,
    TierSelection,
    decode_progress,
    encode_progress,
)
from stratamq.tier.containers.place import progress_path
from stratamq.tier.driver.calls import (
    AbsentError,
    Load,
    Procedure,
    Swap,
    SwapLostError,
    Version,
    ask,
)
from stratamq.tier.writing.claim import FencedError, PutBackError

MAX_GENERATIONS = 64
"""The generations kept of a log's history: a log whose last common generation is older is not
recognized."""
_ATTEMPTS = 10


def load_progress(cluster: str, broker: str) -> Procedure[tuple[TierProgress, Version] | None]:
    """Load without claiming; None: nothing was uploaded from a log yet. CorruptRecordError."""
    try:
        raw, version = yield from ask(Load(progress_path(cluster, broker)))
    except AbsentError:
        return None
    return decode_progress(raw), version


def came_late(manifest: Manifest, generation: int) -> bool:
    """Whether a queue came into the tier after the writer of that generation, the progress's, had
    taken over all that were there: from an earlier master's writer, which was stopped meanwhile.
    None of its messages counts as committed."""
    written = manifest.epoch[0]
    return written > 0 and term_of(written) < term_of(generation)


class ProgressObject:
    """`epoch`: the writer's, from `claim`; `history`: of its log, to its generation."""

    def __init__(
        self, cluster: str, broker: str, epoch: Epoch, history: Sequence[tuple[int, int]] = ()
    ) -> None:
        self._place = cluster, broker
        self._path = progress_path(cluster, broker)
        self._epoch = epoch
        self._history = tuple(history[-MAX_GENERATIONS:])
        self._version: Version | None = None
        self._revision = 0
        """The highest that is known."""
        self.known: TierProgress | None = None
        """What was loaded or stored last."""

    def load(self) -> Procedure[TierProgress | None]:
        """None: nothing was uploaded from a log yet. FencedError, PutBackError;
        CorruptRecordError."""
        loaded = yield from load_progress(*self._place)
        if loaded is None:
            if self._revision:
                raise PutBackError.of_revision(self._path, 0, self._revision)
            self._version = self.known = None
            return None
        found, self._version = loaded
        if found.revision < self._revision:
            raise PutBackError.of_revision(self._path, found.revision, self._revision)
        if found.epoch > self._epoch:
            raise FencedError(
                f"{self._path} was written by writer {found.epoch}; this one is {self._epoch}: "
                "another broker, or another start of this one, writes the tier"
            )
        self._revision = found.revision
        self.known = found
        return found

    def hold(self, *, put_back: bool = False) -> Procedure[TierProgress | None]:
        """Like `load`, and fence earlier writers, which can no longer raise it: what is cut off
        behind it would count as committed again. `put_back`: record that the tier was put back.
        FencedError; CorruptRecordError."""
        for _ in range(_ATTEMPTS):
            known = yield from self.load()
            if known is None:
                return None
            held = replace(
                known,
                epoch=self._epoch,
                revision=known.revision + 1,
                put_back=known.put_back or put_back,
            )
            if (yield from self._swap(held)):
                return held
        raise FencedError.of_conflicts(self._path)

    def continue_above(self, revision: int) -> None:
        """What is stored has a higher revision than this one, which the tier had once."""
        self._revision = max(self._revision, revision)

    def store(
        self,
        generation: int,
        position: int,
        reach: int,
        *,
        choice: TierSelection | None = None,
        forced: bool = False,
        recorded: bool = False,
    ) -> Procedure[None]:
        """`choice`: by which messages are chosen from now on; `forced`: as `TierProgress` has it,
        and from now on; `recorded`: what is missing is. FencedError when a later writer has stored
        its own; PutBackError."""
        for _ in range(_ATTEMPTS):
            before = self.known
            following = TierProgress(
                generation,
                position,
                reach,
                self._epoch,
                self._revision + 1,
                self._history,
            )
            if before is not None:
                chosen = before.chosen[-1:] if recorded else before.chosen
                following = replace(
                    following,
                    put_back=before.put_back and not recorded,
                    forced=(before.forced or forced) and not recorded,
                    chosen=chosen,
                )
            if choice is not None and choice not in following.chosen[-1:]:
                following = replace(following, chosen=(*following.chosen, choice))
            if (yield from self._swap(following)):
                return
            yield from self.load()
        raise FencedError.of_conflicts(self._path)

    def _swap(self, following: TierProgress) -> Procedure[bool]:
        """Swap the object; false if another writer was first."""
        swap = Swap(self._path, encode_progress(following), self._version)
        try:
            self._version = yield from ask(swap)
        except SwapLostError:
            return False
        self._revision, self.known = following.revision, following
        return True
