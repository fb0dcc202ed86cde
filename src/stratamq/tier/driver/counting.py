"""A storage that counts what its calls are: requests, bytes, errors, time and price.

It stands directly around a storage, below `retrying.py`, so that every attempt counts. A call is
one request, a listing one for each 1 000 names: what an object store bills.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from stratamq.tier.driver.calls import (
    AbsentError,
    AlreadyThereError,
    Create,
    Delete,
    Folders,
    List,
    Load,
    Read,
    Size,
    StorageCall,
    Swap,
    SwapLostError,
    WriteAt,
)
from stratamq.tier.driver.storage import Storage, StorageOver

T = TypeVar("T")

KINDS: Mapping[type[StorageCall[Any]], str] = {
    Read: "read",
    Load: "load",
    Size: "size",
    List: "list",
    Folders: "folders",
    Create: "create",
    Swap: "swap",
    WriteAt: "write_at",
    Delete: "delete",
}
NAMES_PER_REQUEST = 1000


@dataclass(frozen=True, slots=True)
class Prices:
    """USD for 1 000 requests. The defaults are those of S3 Standard in us-east-1 in 2025; deletes
    are free there. Bytes kept and bytes that leave the region are not in it."""

    put: float = 0.005
    get: float = 0.0004
    list: float = 0.005

    def of(self, kind: str) -> float:
        """USD for one request of this kind."""
        price = {
            "create": self.put,
            "swap": self.put,
            "write_at": self.put,
            "read": self.get,
            "load": self.get,
            "size": self.get,
            "list": self.list,
            "folders": self.list,
        }.get(kind, 0.0)
        return price / 1000


FREE = Prices(0.0, 0.0, 0.0)
"""A directory."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one kind of call. `lost`: creates and swaps that met another object. `errors`: no
    response, refused or busy. Times: all calls together, and the slowest."""

    requests: int = 0
    errors: int = 0
    lost: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    total_ns: int = 0
    slowest_ns: int = 0


class CountingStorage(StorageOver):
    """`Storage` over another; thread-safe. `seen` gets (kind, nanoseconds, whether it was an error)
    of each call, from the thread that made it."""

    def __init__(
        self,
        storage: Storage,
        monotonic_ns: Callable[[], int],
        prices: Prices = FREE,
        seen: Callable[[str, int, bool], None] | None = None,
    ) -> None:
        self.prices = prices
        super().__init__(storage)
        self._monotonic_ns = monotonic_ns
        self._seen = seen
        self._lock = threading.Lock()
        self._counts = {kind: Counts() for kind in KINDS.values()}

    def _perform(self, call: StorageCall[T]) -> T:
        begun_ns = self._monotonic_ns()
        result: Any = None
        lost = failed = False
        try:
            result = self._storage.perform(call)
        except AbsentError:
            raise
        except (AlreadyThereError, SwapLostError):
            lost = True
            raise
        except Exception:
            failed = True
            raise
        finally:
            self._count(call, result, self._monotonic_ns() - begun_ns, lost, failed)
        return cast(T, result)

    def counts(self) -> dict[str, Counts]:
        """By kind, of this moment."""
        with self._lock:
            return dict(self._counts)

    def requests(self) -> int:
        return sum(counts.requests for counts in self.counts().values())

    def cost_usd(self) -> float:
        """What the requests so far cost."""
        counts = self.counts()
        return sum(self.prices.of(kind) * counts[kind].requests for kind in counts)

    def _count(
        self, call: StorageCall[Any], result: Any, took_ns: int, lost: bool, failed: bool
    ) -> None:
        kind = KINDS[type(call)]
        requests, up, down = 1, 0, 0
        if isinstance(call, Create | Swap | WriteAt):
            up = len(call.data)
        elif isinstance(call, Read) and result is not None:
            down = len(result)
        elif isinstance(call, Load) and result is not None:
            down = len(result[0])
        elif isinstance(call, List | Folders) and result is not None:
            requests = max(1, -(-len(result) // NAMES_PER_REQUEST))
        with self._lock:
            before = self._counts[kind]
            self._counts[kind] = replace(
                before,
                requests=before.requests + requests,
                errors=before.errors + failed,
                lost=before.lost + lost,
                bytes_up=before.bytes_up + up,
                bytes_down=before.bytes_down + down,
                total_ns=before.total_ns + took_ns,
                slowest_ns=max(before.slowest_ns, took_ns),
            )
        if self._seen is not None:
            self._seen(kind, took_ns, failed)
