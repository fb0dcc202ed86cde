"""One file of the simulated disk: what readers see, what the disk has, and what is between.

Nothing is recorded when a mapping is stored through: pages are compared when that is required
(flush, crash, eviction), so that engines write at memory speed.

    page is dirty       its cache differs from what it was when last clean, or `write` marked it
    page is failed      a flush failed: clean, shows `failed[page]`, the disk has something else
"""

from collections.abc import Callable, Iterable

import numpy as np

from stratamq.files.port import PAGE_BYTES, SECTOR_BYTES

SECTORS_PER_PAGE = PAGE_BYTES // SECTOR_BYTES


class Inode:
    """A regular file. `path` is only a name for reports: where it was last seen."""

    def __init__(self, path: str, mtime_ns: int) -> None:
        self.path = path
        self.cache = bytearray()
        self.durable = bytearray()
        self.mtime_ns = mtime_ns
        self.durable_mtime_ns: int | None = None
        """What a crash may take the modification time back to, after `set_mtime`."""
        self.failed: dict[int, bytes] = {}
        self.pending_error = 0
        """An errno of background write-back that the next flush reports."""
        self.holes: set[int] = set()
        """Pages without blocks, as far as `settle_holes` has looked."""
        self.lock_owner: object | None = None
        self._marked: set[int] = set()

    @property
    def size(self) -> int:
        return len(self.cache)

    def allocated_bytes(self) -> int:
        self.settle_holes()
        return (_page_count(self.size) - len(self.holes)) * PAGE_BYTES

    def settle_holes(self) -> set[int]:
        """Give blocks to holes that were stored into; those pages."""
        filled = {page for page in self.holes if any(self.cache[_span(page)])}
        self.holes -= filled
        return filled

    def set_size(self, size: int, *, sparse: bool) -> None:
        """Change the visible size. Raises BufferError when the file is mapped."""
        before = _page_count(self.size)
        if size < self.size:
            del self.cache[size:]
        else:
            self.cache.extend(bytes(size - self.size))
        pages = _page_count(size)
        self.failed = {page: seen for page, seen in self.failed.items() if page < pages}
        self._marked = {page for page in self._marked if page < pages}
        self.holes = {page for page in self.holes if page < pages}
        if sparse:
            self.holes |= set(range(before, pages))

    def set_mtime(self, mtime_ns: int) -> None:
        if self.durable_mtime_ns is None:
            self.durable_mtime_ns = self.mtime_ns
        self.mtime_ns = mtime_ns

    def write(self, position: int, data: bytes | memoryview) -> None:
        self.cache[position : position + len(data)] = data
        pages = _pages(position, len(data))
        self._marked.update(pages)
        self.holes.difference_update(pages)

    def dirty_pages(self) -> list[int]:
        """In order. What a crash may lose, and the next flush writes."""
        dirty = set(self._marked)
        if self.failed or self.cache != self.durable:
            dirty.update(_different_pages(self.cache, self.durable))
            for page, seen in self.failed.items():
                if page not in self._marked and self.cache[_span(page)] == seen:
                    dirty.discard(page)
                else:
                    dirty.add(page)
        return sorted(dirty)

    def flush(self, pages: Iterable[int]) -> None:
        """Make `pages` (dirty ones) and the size durable."""
        self._set_durable_size(self.size)
        self.durable_mtime_ns = None
        for page in pages:
            span = _span(page)
            self.durable[span] = self.cache[span]
            self._clean(page)

    def fail_pages(self, pages: Iterable[int]) -> None:
        """What a failed write-back does to dirty pages: clean, readable, not durable."""
        for page in pages:
            self._clean(page)
            self.failed[page] = bytes(self.cache[_span(page)])

    def evict(self, chosen: Callable[[int], bool]) -> list[int]:
        """Drop clean pages; those whose bytes changed by that, in order.

        Only failed pages can change: every other clean page shows what the disk has.
        """
        dirty = set(self.dirty_pages())
        changed = [page for page in sorted(self.failed) if page not in dirty and chosen(page)]
        for page in changed:
            del self.failed[page]
            span = _span(page)
            shown = memoryview(self.cache)[span]
            on_disk = self.durable[span]
            shown[:] = on_disk + bytes(len(shown) - len(on_disk))
        return changed

    def rot(self, position: int, data: bytes) -> None:
        """Change bytes at rest, below the cache and in it: damage."""
        span = slice(position, position + len(data))
        self.cache[span] = data
        self._set_durable_size(max(len(self.durable), min(self.size, span.stop)))
        self.durable[span] = data

    def after_crash(
        self, keep_page: Callable[[int], bool | int], keep_size: bool, keep_mtime: bool
    ) -> "Inode":
        """The file as the next boot finds it. `keep_page` answers for each dirty page in order:
        True or False for the whole, or a mask of the sectors (bit 0 is the first) that were kept.
        """
        lost = None if keep_mtime else self.durable_mtime_ns
        after = Inode(self.path, self.mtime_ns if lost is None else lost)
        kept = [(page, keep_page(page)) for page in self.dirty_pages()]
        after.durable = bytearray(self.durable)
        if keep_size:
            after._set_durable_size(self.size)
        for page, kept_of_page in kept:
            for sector in _kept_sectors(kept_of_page):
                start = page * PAGE_BYTES + sector * SECTOR_BYTES
                end = min(start + SECTOR_BYTES, len(after.durable), self.size)
                if start < end:
                    after.durable[start:end] = self.cache[start:end]
        after.cache = bytearray(after.durable)
        after.holes = {page for page in self.holes if page < _page_count(after.size)}
        return after

    def dirty_in(self, position: int, length: int) -> list[int]:
        """The dirty pages that a flush of this range must cover."""
        wanted = _pages(position, length)
        return [page for page in self.dirty_pages() if page in wanted]

    def _clean(self, page: int) -> None:
        self._marked.discard(page)
        self.failed.pop(page, None)

    def _set_durable_size(self, size: int) -> None:
        if size < len(self.durable):
            del self.durable[size:]
        else:
            self.durable.extend(bytes(size - len(self.durable)))


def _span(page: int) -> slice:
    return slice(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)


def _pages(position: int, length: int) -> range:
    return range(position // PAGE_BYTES, _page_count(position + length)) if length else range(0)


def _page_count(size: int) -> int:
    return -(-size // PAGE_BYTES)


def _kept_sectors(kept: bool | int) -> Iterable[int]:
    if kept is True:
        return range(SECTORS_PER_PAGE)
    if kept is False:
        return ()
    return [sector for sector in range(SECTORS_PER_PAGE) if kept >> sector & 1]


def _different_pages(cache: bytearray, durable: bytearray) -> list[int]:
    """Pages of `cache` that differ from `durable`, which reads as zeros behind its end."""
    size = _page_count(len(cache)) * PAGE_BYTES
    shown = np.zeros(size, np.uint8)
    shown[: len(cache)] = np.frombuffer(cache, np.uint8)
    on_disk = np.zeros(size, np.uint8)
    common = min(len(cache), len(durable))
    on_disk[:common] = np.frombuffer(durable, np.uint8, common)
    different = (shown != on_disk).reshape(-1, PAGE_BYTES).any(axis=1)
    return np.flatnonzero(different).tolist()
