"""The list of queues that a tier has had, as its writer keeps it.

It is in pages, of which the last grows: a new queue costs a page, however many there are.
"""

from collections.abc import Iterable

from stratamq.formats.tier_manifest import Epoch
from stratamq.formats.tier_progress import QueueName, QueuePage, encode_queue_page
from stratamq.tier.containers.place import queues_path
from stratamq.tier.driver.calls import Procedure, Swap, SwapLostError, Version, ask
from stratamq.tier.reading.queue_list import load_queue_page
from stratamq.tier.writing.claim import FencedError

PAGE_QUEUES = 1_000
_ATTEMPTS = 10


class QueueList:
    """`epoch`: the writer's, from `claim`. One procedure at a time; `names` is of any thread."""

    def __init__(self, cluster: str, broker: str, epoch: Epoch) -> None:
        self._place = cluster, broker
        self._epoch = epoch
        self.names: set[QueueName] = set()
        """Those that are in the list."""
        self._pages: list[tuple[QueuePage, Version]] = []

    def load(self) -> Procedure[None]:
        """FencedError; CorruptRecordError."""
        pages: list[tuple[QueuePage, Version]] = []
        while (found := (yield from load_queue_page(*self._place, len(pages)))) is not None:
            if found[0].epoch > self._epoch:
                raise FencedError(
                    f"{queues_path(*self._place, len(pages))} is of the writer {found[0].epoch}, "
                    f"and this one is {self._epoch}"
                )
            pages.append(found)
        self._pages = pages
        self.names = {name for page, _ in pages for name in page.queues}

    def hold(self) -> Procedure[None]:
        """`load`, after which no earlier writer can add a queue."""
        for _ in range(_ATTEMPTS):
            yield from self.load()
            last = self._pages[-1][0] if self._pages else QueuePage((), self._epoch)
            if (yield from self._swap(max(0, len(self._pages) - 1), last.queues)):
                return
        raise FencedError.of_conflicts(queues_path(*self._place, 0))

    def add(self, names: Iterable[QueueName]) -> Procedure[None]:
        """They are in the list when this returns. FencedError; CorruptRecordError."""
        wanted = sorted(set(names))
        for _ in range(_ATTEMPTS):
            while new := [name for name in wanted if name not in self.names]:
                number = max(0, len(self._pages) - 1)
                there = self._pages[number][0].queues if self._pages else ()
                if len(there) >= PAGE_QUEUES:
                    number, there = number + 1, ()
                grown = (*there, *new[: PAGE_QUEUES - len(there)])
                if not (yield from self._swap(number, grown)):
                    break
            else:
                return
            # Those of an older copy that was put back are not forgotten.
            wanted = sorted({*wanted, *self.names})
            yield from self.load()
        raise FencedError.of_conflicts(queues_path(*self._place, 0))

    def _swap(self, number: int, queues: tuple[QueueName, ...]) -> Procedure[bool]:
        """Whether no other was first."""
        before = self._pages[number] if number < len(self._pages) else None
        revision = before[0].revision + 1 if before else 1
        page = QueuePage(queues, self._epoch, revision)
        version = before[1] if before else None
        swap = Swap(queues_path(*self._place, number), encode_queue_page(page), version)
        try:
            version = yield from ask(swap)
        except SwapLostError:
            return False
        self._pages[number:] = [(page, version)]
        self.names.update(queues)
        return True
