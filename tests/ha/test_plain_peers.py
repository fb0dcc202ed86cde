"""A slave that uses RocketMQ's protocol and nothing else, byte by byte, at our master's port."""

import socket

import pytest

from stratamq.formats.replication import REPORT, ROCKETMQ_TRANSFER_BYTES, TransferReader
from tests.ha.pairs import SEGMENT, Pair, ha_status, log_status, segments
from tests.support.waiting import until

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with Pair(tmp_path_factory.mktemp("pair"), master=["ha.heartbeat_ms=100"]) as pair:
        pair.start_master()
        pair.send(200)
        end = log_status(pair.master).appended_offset
        # Without slaves an ASYNC_MASTER's replication hears of the log's end every 50 ms.
        until(lambda: ha_status(pair.master).shippable_offset == end, "replication knows the end")
        yield pair


def transferred(pair: Pair, request: int, end: int) -> tuple[list[int], list[int], bytes]:
    """Offsets and sizes of the transfers from `request` to `end`, heartbeats included, and what
    they hold."""
    host, _, port = pair.replication_address().rpartition(":")
    offsets: list[int] = []
    sizes: list[int] = []
    content, reader = b"", TransferReader()
    with socket.create_connection((host, int(port)), DEADLINE_S) as peer:
        for byte in REPORT.pack(request):
            peer.sendall(bytes([byte]))
        while not offsets or offsets[0] + len(content) < end or sizes[-1] > 0:
            data = peer.recv(1 << 16)
            assert data, "the master closed the connection"
            for piece in reader.feed(data):
                if piece.opens:
                    offsets.append(piece.offset)
                    sizes.append(0)
                sizes[-1] += len(piece.data)
                content += piece.data
    return offsets, sizes, content


def log_bytes(pair: Pair) -> bytes:
    whole = segments(pair.master)
    return b"".join(whole[name] for name in sorted(whole))


def test_transfers_are_rocketmqs(pair):
    end = log_status(pair.master).appended_offset
    offsets, sizes, content = transferred(pair, SEGMENT, end)
    assert content == log_bytes(pair)[SEGMENT:end]
    assert max(sizes) == ROCKETMQ_TRANSFER_BYTES
    expected = SEGMENT
    for offset, size in zip(offsets, sizes, strict=True):
        assert offset == expected
        if size:
            assert offset // SEGMENT == (offset + size - 1) // SEGMENT, "never across segments"
        expected += size
    assert sizes[-1] == 0, "and then heartbeats, at the end"


def test_a_slave_with_nothing_gets_the_last_segment_only(pair):
    end = log_status(pair.master).appended_offset
    offsets, _, content = transferred(pair, 0, end)
    assert offsets[0] == end - end % SEGMENT > 0
    assert content == log_bytes(pair)[offsets[0] : end]
