"""Frames of a size and so many bytes, as pieces of them come in."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stratamq.rpc.sized_frames import KEPT_BYTES, SIZE, Frame, SizedFrames

LENGTHS = st.integers(0, 40) | st.sampled_from([KEPT_BYTES - SIZE.size, KEPT_BYTES, 2 * KEPT_BYTES])


class Received(SizedFrames):
    def __init__(self, sent: list[bytes]) -> None:
        super().__init__()
        self.sent = sent
        self.bytes = b"".join(SIZE.pack(len(one)) + one for one in sent)
        self.frames: list[bytes] = []

    def received(self, frame: Frame | None) -> None:
        self.frames.append(bytes(frame))

    def come(self, most: int) -> None:
        """The way the event loop receives."""
        buffer = self.get_buffer(-1)
        count = min(most, len(self.bytes), len(buffer))
        buffer[:count], self.bytes = self.bytes[:count], self.bytes[count:]
        self.buffer_updated(count)


@settings(max_examples=60, deadline=None)
@given(st.lists(LENGTHS, max_size=4), st.lists(LENGTHS, max_size=4), st.integers(1, 100_000))
def test_connections_whose_pieces_come_by_turns_keep_their_own(first, second, most):
    """They receive into one buffer."""
    letters = iter(range(1, 256))
    pair = [Received([bytes((next(letters),)) * one for one in sent]) for sent in (first, second)]
    while any(one.bytes for one in pair):
        for one in pair:
            if one.bytes:
                one.come(max(most, sum(map(len, one.sent)) // 50))
    for one in pair:
        assert one.frames == one.sent
