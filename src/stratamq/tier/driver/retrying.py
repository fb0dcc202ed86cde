"""A storage that asks again, and finds out what became of a write whose answer was lost.

A call whose outcome is open, or that was not done (BusyError), is repeated after a pause that
doubles, with jitter. Reads, deletes and writes at a position may be repeated as they are. A create
or swap that is refused after an open outcome may have met its own object: its content tells, since
what two writers write differs (manifests name epoch and attempt, objects are named by theirs).
Where it is another one, the error has the field `perhaps_done`: the swap may have been done and
replaced since. When the attempts are used up the last error is raised, and its outcome is open.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from stratamq.errors import BusyError
from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Create,
    Load,
    Size,
    StorageCall,
    StorageUnavailableError,
    Swap,
    SwapLostError,
    Version,
)
from stratamq.tier.driver.storage import Storage, StorageOver

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retries:
    """`attempts` in all; the pause before the second is at most `first_pause_ms`."""

    attempts: int = 5
    first_pause_ms: int = 100
    longest_pause_ms: int = 5_000

    def pause_ms(self, failed: int, chance: float) -> float:
        """After so many failed attempts. `chance` in [0, 1): half of the pause is jitter."""
        longest = min(self.longest_pause_ms, self.first_pause_ms << (failed - 1))
        return longest * (1 + chance) / 2


class RetryingStorage(StorageOver):
    """`Storage` over another. `pause` waits that many seconds; `chance` gives [0, 1)."""

    def __init__(
        self,
        storage: Storage,
        retries: Retries,
        pause: Callable[[float], None],
        chance: Callable[[], float],
    ) -> None:
        super().__init__(storage)
        self._retries = retries
        self._pause = pause
        self._chance = chance
        self._gives_up = False

    def _perform(self, call: StorageCall[T]) -> T:
        failed, is_open = 0, False
        while True:
            try:
                return self._attempt(call, is_open)
            except StorageUnavailableError:
                failed, is_open = failed + 1, True
                if failed == self._retries.attempts or self._gives_up:
                    raise
                wait_ms = 0
            except BusyError as busy:
                failed += 1
                if failed == self._retries.attempts or self._gives_up:
                    raise
                wait_ms = min(busy.retry_after_ms, self._retries.longest_pause_ms)
            self._pause(max(wait_ms, self._retries.pause_ms(failed, self._chance())) / 1000)

    def give_up(self) -> None:
        """Stop retrying: waiting callers get the next error. From any thread."""
        self._gives_up = True

    def _attempt(self, call: StorageCall[T], is_open: bool) -> T:
        """`is_open`: an earlier attempt may have been done."""
        try:
            return self._storage.perform(call)
        except (AlreadyThereError, SwapLostError) as lost:
            if not is_open or not isinstance(call, Create | Swap):
                raise
            own = self._own(call)
            if own is None:
                lost.fields["perhaps_done"] = True
                raise
            return cast(T, own)

    def _own(self, call: Create | Swap) -> Version | None:
        """The version of the object, if it has the content that the call was to give it."""
        if self._storage.perform(Size(call.path)) != len(call.data):
            return None
        try:
            data, version = self._storage.perform(Load(call.path))
        except AbsentError:
            return None
        return version if data == call.data else None
