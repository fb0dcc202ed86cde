"""A slave that is being sent a segment while its master deletes it, as real processes."""

from tests.ha.pairs import SEGMENT, Pair, ha_status, log_status, until
from tests.support.brokers import DISPATCHER, HA, INDEX

QUICK = ["commitlog.release_timeout_ms=0", "commitlog.snapshot_interval_ms=50"]
HELD = ["ha.housekeeping_ms=600000"]
"""A connection that is held stays, however long it takes to fill the log."""


def test_a_slave_whose_segment_is_deleted_under_its_stream_is_reported_and_begins_anew(tmp_path):
    with Pair(tmp_path, rooms=[DISPATCHER, INDEX], both=[*QUICK, *HELD]) as pair:
        pair.start()
        pair.send(60)
        pair.caught_up()
        pair.wire.hold()  # what the master sends from here on stays on the wire
        pair.send(9_000, largest=6_000)
        end = log_status(pair.master).appended_offset
        minimum = end - end % SEGMENT - SEGMENT
        pair.delete_below(minimum)
        until(
            lambda: any("was deleted" in one.problem for one in ha_status(pair.master).slaves),
            "the master has closed the connection and reported why",
        )
        pair.wire.release()
        pair.wire.cut()
        pair.caught_up()
        assert log_status(pair.slave).minimum_offset == minimum
        pair.assert_equal_from(minimum)
        pair.served_equally()
        assert "was deleted" in pair.master.output(HA)
        assert list((tmp_path / "slave" / "stratamq" / "aside").glob("commitlog-*"))
