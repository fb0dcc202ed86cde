"""Hand-framed messages are the very bytes of the stubs, and any legal encoding is understood."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from stratamq.api.v1 import commitlog_pb2, delivery_pb2, dispatcher_pb2, tier_pb2
from stratamq.errors import InvalidRequestError
from stratamq.rpc import framing

CODECS = [
    framing.APPEND_STREAM_REQUEST,
    framing.APPEND_DATA_REQUEST,
    framing.READ_RANGE_RESPONSE,
    framing.PULL_RESPONSE,
    framing.PULL_STREAM_RESPONSE,
    framing.FETCH_MESSAGES_RESPONSE,
]
codecs = st.sampled_from(CODECS)
I64 = st.integers(-(2**63), 2**63 - 1)

runs = st.lists(
    st.builds(
        commitlog_pb2.AppendRun,
        topic=st.text(max_size=5),
        queue_id=st.integers(-(2**31), 2**31 - 1),
        count=st.integers(0, 100),
    ),
    max_size=3,
)


@given(st.booleans(), I64, runs, st.binary(max_size=300), st.binary(max_size=300))
def test_an_append_request_is_what_the_stub_serialises(with_open, sequence, runs, lengths, frames):
    head = commitlog_pb2.AppendStreamRequest(sequence=sequence, runs=runs)
    if with_open:
        head.open.client_name = "me"
    whole = commitlog_pb2.AppendStreamRequest()
    whole.CopyFrom(head)
    whole.packed_lengths, whole.frames = lengths, frames
    framed = framing.APPEND_STREAM_REQUEST.encode(head, lengths, frames)
    assert framed == whole.SerializeToString()
    decoded, (decoded_lengths, decoded_frames) = framing.APPEND_STREAM_REQUEST.decode(framed)
    assert decoded == head
    assert (decoded_lengths, decoded_frames) == (lengths, frames)


@given(I64, runs, st.binary(max_size=99), st.lists(st.binary(max_size=99), max_size=4))
def test_an_append_request_of_pieces_is_what_the_stub_serialises(sequence, runs, lengths, pieces):
    head = commitlog_pb2.AppendStreamRequest(sequence=sequence, runs=runs)
    size = sum(map(len, pieces))
    assert framing.APPEND_STREAM_REQUEST.encode_pieces(head, pieces, size, [lengths]) == (
        framing.APPEND_STREAM_REQUEST.encode(head, lengths, b"".join(pieces))
    )


@pytest.mark.parametrize("message", ["PullResponse", "PullStreamResponse"])
@given(st.integers(0, 9), I64, I64, st.lists(st.binary(max_size=200), max_size=4))
def test_a_pull_response_of_pieces_is_what_the_stub_serialises(message, status, low, high, pieces):
    message_type = getattr(dispatcher_pb2, message)
    codec = framing.PULL_RESPONSE if message == "PullResponse" else framing.PULL_STREAM_RESPONSE
    head = message_type(status=status, next_offset=low, min_offset=high, max_offset=low, count=3)
    whole = message_type()
    whole.CopyFrom(head)
    whole.frames = b"".join(pieces)
    framed = codec.encode_pieces(head, pieces, sum(map(len, pieces)))
    assert framed == whole.SerializeToString()
    assert codec.decode(framed) == (head, [whole.frames])


@given(I64, st.lists(I64, max_size=5), st.lists(st.binary(max_size=200), max_size=4))
def test_a_tiers_response_is_understood_by_the_stub_and_the_stubs_by_us(offset, codes, pieces):
    head = tier_pb2.FetchMessagesResponse(next_offset=offset, tags_codes=codes)
    whole = tier_pb2.FetchMessagesResponse()
    whole.CopyFrom(head)
    whole.frames = b"".join(pieces)
    framed = framing.FETCH_MESSAGES_RESPONSE.encode_pieces(head, pieces, sum(map(len, pieces)))
    assert tier_pb2.FetchMessagesResponse.FromString(framed) == whole
    for data in (framed, whole.SerializeToString()):
        assert framing.FETCH_MESSAGES_RESPONSE.decode(data) == (head, [whole.frames])


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.message_type.DESCRIPTOR.name)
def test_large_fields_are_views_and_not_copies(codec):
    big = bytes(range(256)) * 2000
    framed = codec.encode(codec.message_type(), *[big for _ in codec._fields])
    for view in codec.decode(framed)[1]:
        assert view.obj is framed
        assert view == big


def test_a_message_with_its_fields_in_another_order_is_understood():
    first = commitlog_pb2.AppendStreamRequest(frames=b"frames").SerializeToString()
    second = commitlog_pb2.AppendStreamRequest(packed_lengths=b"1234").SerializeToString()
    third = commitlog_pb2.AppendStreamRequest(sequence=7).SerializeToString()
    for data in (first + second + third, second + third + first, second + first + third):
        head, (lengths, frames) = framing.APPEND_STREAM_REQUEST.decode(data)
        assert (head, lengths, frames) == (
            commitlog_pb2.AppendStreamRequest(sequence=7),
            b"1234",
            b"frames",
        )


def test_of_a_field_that_comes_twice_the_last_one_counts():
    once = commitlog_pb2.ReadRangeResponse(offset=5, data=b"old").SerializeToString()
    again = commitlog_pb2.ReadRangeResponse(data=b"new").SerializeToString()
    assert framing.READ_RANGE_RESPONSE.decode(once + again)[1] == [b"new"]


def test_padded_varints_are_understood():
    plain = framing.READ_RANGE_RESPONSE.encode(commitlog_pb2.ReadRangeResponse(), b"data")
    assert plain == b"\x12\x04data"
    for padded in (b"\x92\x00\x04data", b"\x12\x84\x80\x00data"):
        assert commitlog_pb2.ReadRangeResponse.FromString(padded).data == b"data"
        assert framing.READ_RANGE_RESPONSE.decode(padded)[1] == [b"data"]


def unknown_field(number: int, payload: bytes) -> bytes:
    return framing.encode_varint(number << 3 | 2) + framing.encode_varint(len(payload)) + payload


pieces = st.lists(
    st.one_of(
        st.binary(max_size=12),
        st.tuples(st.integers(1, 20), st.binary(max_size=9)).map(lambda p: unknown_field(*p)),
        st.tuples(st.integers(1, 20), st.integers(0, 2**64 - 1)).map(
            lambda p: framing.encode_varint(p[0] << 3) + framing.encode_varint(p[1])
        ),
    ),
    max_size=6,
).map(b"".join)


@given(codecs, pieces)
@example(framing.PULL_RESPONSE, b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
@example(framing.PULL_RESPONSE, b"\x01")
@example(framing.READ_RANGE_RESPONSE, b"\x12\x02ab\x0b\x0c")
def test_any_bytes_are_read_as_the_stub_reads_them(codec, data):
    try:
        expected = codec.message_type.FromString(data)
    except DecodeError:
        with pytest.raises(InvalidRequestError):
            codec.decode(data)
        return
    head, large = codec.decode(data)
    assert large == [getattr(expected, field) for field in codec._fields]
    for field in codec._fields:
        expected.ClearField(field)
    expected.DiscardUnknownFields()
    head.DiscardUnknownFields()
    assert head == expected


@given(codecs, st.integers(0, 60))
def test_every_prefix_is_read_as_the_stub_reads_it(codec, cut):
    large = [b"x" * 20 for _ in codec._fields]
    test_any_bytes_are_read_as_the_stub_reads_them.hypothesis.inner_test(
        codec, codec.encode(codec.message_type(), *large)[:cut]
    )


@given(st.integers(0, 2**64 - 1))
def test_varints_come_back(value):
    encoded = framing.encode_varint(value)
    assert framing.decode_varint(encoded, 0) == (value, len(encoded))


handed_out = st.tuples(
    st.integers(0, 63),
    st.binary(max_size=60),
    st.integers(0, 300),
    st.sampled_from([0, 2**41]),
    st.binary(max_size=300),
)


@given(st.lists(handed_out, max_size=6))
def test_hand_outs_are_what_the_stub_serialises(hand_outs):
    whole, framed = delivery_pb2.ReceiveResponse(), []
    for worker, ticket, attempt, until_ms, frames in hand_outs:
        small = delivery_pb2.HandOut(
            worker=worker, ticket=ticket, attempt=attempt, invisible_until_ms=until_ms
        )
        framed.append((small, memoryview(frames)))
        whole.hand_outs.add(frames=frames).MergeFrom(small)
    assert framing.encode_hand_outs(framed) == whole.SerializeToString()
