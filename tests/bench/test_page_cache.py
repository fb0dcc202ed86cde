"""The page cache is full before a case, whatever memory the machine has."""

from stratamq_bench.page_cache import LEFT_FREE_BYTES, PIECE_BYTES, filling, free_bytes


class Memory:
    """So much is free, and every piece that is read takes `taken` of it."""

    def __init__(self, pieces, taken=PIECE_BYTES):
        self.pieces, self.taken, self.cache = pieces, taken, None

    def __call__(self):
        read = self.cache.position if self.cache is not None else 0
        return LEFT_FREE_BYTES + self.pieces * PIECE_BYTES - read // PIECE_BYTES * self.taken


def test_what_is_free_is_filled_and_never_read_twice(tmp_path):
    memory = Memory(3)
    with filling(tmp_path, memory) as cache:
        memory.cache = cache
        cache.fill()
        assert cache.position == 3 * PIECE_BYTES
        cache.fill()
        assert cache.position == 3 * PIECE_BYTES
        memory.pieces = 5
        cache.fill()
        assert cache.position == 5 * PIECE_BYTES
    assert list(tmp_path.iterdir()) == []


def test_filling_ends_where_memory_does_not_shrink(tmp_path):
    directory = tmp_path / "made" / "here"
    with filling(directory, Memory(2, taken=0), hole=4 * PIECE_BYTES) as cache:
        cache.fill()
        assert cache.position == 4 * PIECE_BYTES


def test_this_machine_has_free_memory():
    assert free_bytes() > 0
