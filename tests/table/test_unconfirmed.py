"""A SYNC_MASTER that its slave does not reach: what it alone has no reader of messages is shown."""

import pytest

import stratamq
from stratamq.api.v1 import commitlog_pb2
from stratamq.client import SendStatus, connect
from stratamq.errors import OffsetOutOfRangeError
from stratamq.rpc.framing import READ_RANGE_RESPONSE
from stratamq.rpc.methods import METHODS
from tests.support.brokers import COMMITLOG, DISPATCHER, INDEX, Broker
from tests.table.conftest import address_of


def test_no_reader_of_messages_is_shown_what_is_not_confirmed(tmp_path):
    settings = ("commitlog.role=SYNC_MASTER", "commitlog.followers=dispatcher,index")
    with (
        Broker(tmp_path / "store", tmp_path / "logs", settings) as broker,
        connect(broker.start([COMMITLOG, DISPATCHER, INDEX]).root) as client,
    ):
        sent = client.send("orders", b"here alone", keys=["k"])
        state = client.log_state()
        assert sent.status is SendStatus.SLAVE_NOT_AVAILABLE
        assert state.confirmed_offset == 0 < state.appended_offset
        for read in (
            lambda: client.message_at(sent.physical_offset),
            lambda: client.message_by_id(sent.message_id),
            lambda: list(client.log_frames(0, state.appended_offset)),
        ):
            with pytest.raises(OffsetOutOfRangeError, match="not confirmed"):
                read()
        assert list(client.log_frames(0)) == []
        assert client.query_key("orders", "k").messages == []
        assert client.queues() == []
        for place in (address_of(broker.root, COMMITLOG), str(broker.root)):
            assert stratamq.scan(place).to_arrow().num_rows == 0
        request = commitlog_pb2.ReadRangeRequest(unconfirmed=True)
        (piece,) = METHODS["ReadRange"].on(broker._channels[COMMITLOG])(request)
        head, (data,) = READ_RANGE_RESPONSE.decode(piece)
        assert (head.offset, head.confirmed_offset, len(data)) == (0, 0, state.appended_offset)
