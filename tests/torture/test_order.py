"""No acknowledgement is sent before its flush; the check detects one that is."""

import struct

import pytest
from stratamq_torture.processes.call_trace import PREFACE, Direction, missing, parse
from stratamq_torture.processes.order import (
    SEGMENT_BYTES,
    Answer,
    Trace,
    read_trace,
    run_order,
)
from stratamq_torture.trial import Options

from stratamq.formats.file_names import offset_name

needs_strace = pytest.mark.skipif(bool(missing()), reason=f"no trace: {missing()}")


@needs_strace
def test_under_sync_flush_every_answer_leaves_behind_its_flush():
    report = run_order(Options(20))
    assert report.failures == []
    assert report.acknowledged_messages == 80


@needs_strace
def test_under_async_flush_answers_are_seen_to_leave_before_it():
    report = run_order(Options(10), flush="ASYNC_FLUSH")
    assert any("left too early" in line for line in report.failures)
    assert not any("misses calls" in line for line in report.failures)


# --- which sync covers an answer ---

FIRST, SECOND = offset_name(0), offset_name(SEGMENT_BYTES)


@pytest.mark.parametrize(
    ("segment", "begun", "ended", "covered"),
    [
        (FIRST, 11, 19, True),
        (FIRST, 9, 19, False),  # it began before the request was there
        (FIRST, 11, 21, False),  # the answer left before it had ended
        (SECOND, 11, 19, False),  # it was for another segment
    ],
)
def test_a_sync_covers_an_answer_only_between_request_and_answer(segment, begun, ended, covered):
    trace = Trace([Answer(1, 100, received=10, sent=20)])
    trace.syncs[segment].append((begun, ended))
    assert (trace.uncovered(SEGMENT_BYTES) == []) is covered


def test_a_sync_that_failed_covers_nothing():
    line = "7 fdatasync(5</s/commitlog/00000000000000000000>) = -1 EIO (Input/output error)\n"
    assert dict(read_trace(parse([line])).syncs) == {}


# --- the trace ---


def test_calls_that_overlap_keep_their_entries_and_exits():
    lines = [
        "7 fdatasync(5</s/commitlog/00000000000000000000> <unfinished ...>\n",
        '8 sendmsg(6<TCP:[a->b]>, {msg_iov=[{iov_base="\\0\\1\\"x", iov_len=4}]}, 0) = 4\n',
        "7 <... fdatasync resumed>)              = 0\n",
        '8 recvmsg(6<TCP:[a->b]>, {msg_iov=[{iov_base="abc", iov_len=9}]}, 0) = 2\n',
        "7 +++ exited with 0 +++\n",
    ]
    calls = [(c.name, c.begun, c.ended, c.data, c.result) for c in parse(lines)]
    assert calls == [
        ("sendmsg", 1, 1, b'\0\1"x', 4),
        ("fdatasync", 0, 2, b"", 0),
        ("recvmsg", 3, 3, b"ab", 2),
    ]


def http2_frame(kind: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, 0, stream) + payload


@pytest.mark.parametrize("piece", [1, 2, 7, 1000])
def test_messages_are_found_in_whatever_pieces_they_come(piece):
    def message(content: bytes) -> bytes:
        return struct.pack(">BI", 0, len(content)) + content

    data = PREFACE + http2_frame(4, 0, b"settings")
    begins = len(data)  # with the frame that holds its first byte
    data += http2_frame(0, 1, message(b"first")[:3]) + http2_frame(0, 3, message(b"other"))
    data += http2_frame(0, 1, message(b"first")[3:] + message(b"second"))
    direction, found = Direction(), []
    for position in range(0, len(data), piece):
        found += direction.feed(data[position : position + piece], position)
    assert [(m.stream, m.content) for m in found] == [(3, b"other"), (1, b"first"), (1, b"second")]
    first = found[1]
    assert first.begun == begins - begins % piece
    assert first.ended >= data.index(message(b"second")) - piece
