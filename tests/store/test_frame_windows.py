"""Frames of a bare range, a bounded piece at a time."""

import pytest

from stratamq.store.log_pieces import PIECE_BYTES, next_frames
from tests.support.logs import raw_frame


@pytest.mark.parametrize("piece_bytes", [8, 700, 4_096, PIECE_BYTES])
def test_pieces_of_any_size_give_every_frame_once(piece_bytes):
    log = b"".join(raw_frame(bytes(size)) for size in (1, 300, 5_000, 2, 80_000, 3))
    place, found = 0, []
    while place < len(log):
        data, lengths = next_frames(
            lambda at, limit: log[at : at + limit], place, len(log), 100, piece_bytes
        )
        found.append(bytes(data[: int(lengths.sum())]))
        place += len(found[-1])
    assert b"".join(found) == log


def test_a_larger_piece_is_read_at_once():
    log = raw_frame(bytes(1_000)) * 2_000
    read = []

    def window(at, limit):
        read.append(limit)
        return log[at : at + limit]

    _, lengths = next_frames(window, 0, len(log), 4_096, 4 << 20)
    assert read == [len(log)]
    assert len(lengths) == 2_000
