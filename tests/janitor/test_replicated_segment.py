"""A slave that is being sent a segment while its master deletes it, as real processes."""

from stratamq.api.v1 import commitlog_pb2 as log_pb
from tests.ha.pairs import SEGMENT, Pair, ha_status, log_status, until
from tests.support.brokers import DISPATCHER, HA, INDEX

QUICK = ["commitlog.release_timeout_ms=0", "commitlog.snapshot_interval_ms=50"]


def test_a_slave_whose_segment_is_deleted_under_its_stream_is_told_and_begins_anew(tmp_path):
    with Pair(tmp_path, rooms=[DISPATCHER, INDEX], both=QUICK) as pair:
        pair.start()
        pair.send(60)
        pair.caught_up()
        pair.wire.hold()  # what the master sends from here on stays on the wire
        pair.send(9_000, largest=6_000)
        end = log_status(pair.master).appended_offset
        minimum = end - end % SEGMENT - SEGMENT
        request = log_pb.DeleteBelowRequest(offset=minimum, max_segments=1000, urgent=True)
        until(
            lambda: pair.master.log.DeleteBelow(request).minimum_offset == minimum,
            "the master's log begins at its last but one segment",
        )
        until(
            lambda: any("was deleted" in one.problem for one in ha_status(pair.master).slaves),
            "the master has closed the connection, and says why",
        )
        pair.wire.release()
        pair.wire.cut()
        pair.caught_up()
        assert log_status(pair.slave).minimum_offset == minimum
        pair.assert_equal_from(minimum)
        pair.served_equally()
        assert "was deleted" in pair.master.output(HA)
        assert list((tmp_path / "slave" / "stratamq" / "aside").glob("commitlog-*"))
