"""Messages that are in a tier alone are in the table as well, each once, whatever is deleted."""

import shutil

import pytest
from stratamq_pipeline.iceberg.queue_ends import queue_ends
from stratamq_pipeline.iceberg.writing import FileLimits

from stratamq.errors import InvalidRequestError, OffsetOutOfRangeError
from stratamq.formats.store_paths import COMMIT_LOG
from tests.pipeline.iceberg_tables import export, positions, rows, scanned, table_of
from tests.pipeline.tiers import BROKER, cut_log, in_tier, uploaded, without_place

STORE = "5.5.1-small-clean"


@pytest.fixture
def store(fixture_store, tmp_path):
    shutil.copytree(fixture_store(STORE), tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def segments(store):
    return sorted((store / COMMIT_LOG).iterdir())


def same(found, wanted):
    return without_place(found) == without_place(wanted)


def test_of_log_and_tier_each_message_is_in_the_table_once(store, out, tmp_path):
    tier = uploaded(cut_log(store, tmp_path / "first", 3), tmp_path / "tier")
    everything = scanned(store)
    for path in segments(store)[:2]:
        path.unlink()
    summary = export(store, out, tier=str(tier))
    assert summary.facts["messages"] == len(everything) > len(scanned(store))
    assert same(rows(out), everything)
    assert export(store, out, tier=str(tier)).facts["result"] == "nothing new"
    assert export(store, out).facts["result"] == "nothing new"


def test_an_export_that_ended_within_the_tier_goes_on_queue_by_queue(store, out, tmp_path):
    tier = uploaded(cut_log(store, tmp_path / "first", 3), tmp_path / "tier")
    everything = scanned(store)
    for path in segments(store)[:2]:
        path.unlink()
    limits = FileLimits(buffered_bytes=1)
    more = {"tier": str(tier), "commit_bytes": 1, "limits": limits}
    commits = export(store, out, **more).facts["commits"]
    assert commits > 5
    history = table_of(out).snapshots()
    for number in range(0, commits - 1, max(1, commits // 3)):
        table = table_of(out)
        table.manage_snapshots().set_current_snapshot(history[number].snapshot_id).commit()
        assert 0 < len(rows(out)) < len(everything)
        with pytest.raises(InvalidRequestError, match="give --tier"):
            export(store, out)
        export(store, out, tier=str(tier))
        assert same(rows(out), everything)


def test_what_was_deleted_before_its_export_comes_from_the_tier(store, out, tmp_path):
    everything = scanned(store)
    export(cut_log(store, tmp_path / "first", 1), out)
    tier = uploaded(store, tmp_path / "tier")
    for path in segments(store)[:-1]:
        path.unlink()
    with pytest.raises(OffsetOutOfRangeError):
        export(store, out)
    export(store, out, tier=str(tier))
    assert same(rows(out), everything)
    assert positions(out)[0] > 0


def test_what_is_in_neither_is_a_gap_to_accept(store, out, tmp_path):
    export(cut_log(store, tmp_path / "first", 1), out)
    tier = uploaded(cut_log(store, tmp_path / "some", 1), tmp_path / "tier")
    for path in segments(store)[:-1]:
        path.unlink()
    with pytest.raises(OffsetOutOfRangeError, match="neither in the tier nor in the log"):
        export(store, out, tier=str(tier))
    before = rows(out)
    export(store, out, tier=str(tier), accept_gap=True)
    assert same(rows(out), before + scanned(store))
    assert export(store, out).facts["result"] == "nothing new"


def test_what_a_tier_alone_has_lost_is_a_gap_to_accept(store, out, tmp_path):
    export(uploaded(cut_log(store, tmp_path / "first", 1), tmp_path / "old"), out)
    before = rows(out)
    for path in segments(store)[:-1]:
        path.unlink()
    tier = uploaded(store, tmp_path / "tier")
    with pytest.raises(OffsetOutOfRangeError, match="--accept-gap continues without them"):
        export(tier, out)
    export(tier, out, accept_gap=True)
    assert same(rows(out), before + [row for row in scanned(store) if in_tier(row)])


def test_a_tier_alone_is_a_table_that_grows_with_it(store, out, tmp_path):
    wanted = [row for row in scanned(store) if in_tier(row)]
    tier = uploaded(cut_log(store, tmp_path / "first", 2), tmp_path / "tier")
    export(tier, out, broker=BROKER)
    assert 0 < len(rows(out)) < len(wanted)
    uploaded(store, tmp_path / "tier")
    export(tier, out)
    assert same(rows(out), wanted)
    assert export(tier, out).facts["result"] == "nothing new"


def test_the_ends_of_queues_are_those_of_their_rows(store, out):
    export(store, out)
    ends = {queue: read.next for queue, read in queue_ends(table_of(out)).items()}
    for row in scanned(store):
        queue = row["topic"], row["queueId"]
        assert row["queueOffset"] < ends[queue]
    wanted = {(row["topic"], row["queueId"], row["queueOffset"]) for row in scanned(store)}
    assert all((*queue, end - 1) in wanted for queue, end in ends.items())


def test_a_broker_is_asked_for_its_tier_itself(out, tmp_path):
    with pytest.raises(InvalidRequestError, match="leave out --tier"):
        export("127.0.0.1:1", out, tier=str(tmp_path))
