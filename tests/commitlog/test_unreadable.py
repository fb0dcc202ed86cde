"""Bytes of the log that cannot be read: an error for their messages, and for nothing else."""

import errno
import os

import pytest

from stratamq.client import connect
from stratamq.errors import CorruptionError, StoreRefusedError
from stratamq.store.segment_reader import UnreadableError
from tests.support.brokers import ROOMS, Broker
from tests.support.logs import Store, message, segment_path
from tests.support.waiting import until_dispatched, until_indexed

SEGMENT = 1 << 16
CUT_SHORT = 8192


def test_a_segment_that_is_cut_short_under_running_services_costs_its_messages_and_no_process(
    tmp_path,
):
    """Pages behind a file's end are like pages that the device refuses: an access through a
    mapping kills the process, after each restart, without a message."""
    settings = (f"commitlog.segment_bytes={SEGMENT}", "commitlog.scrub_bytes_per_second=0")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start()
        with connect(broker.root, retry_timeout_s=60) as client:
            stored = []
            for number in range(200):
                body = b"%d" % number + bytes(1024)
                stored.append((body, client.send("t", body, queue_id=0, keys=[f"key-{number}"])))
            end = client.log_state().appended_offset
            assert end > 3 * SEGMENT
            until_dispatched(client, end)
            until_indexed(client, end)
            os.truncate(broker.root / segment_path(0), CUT_SHORT)
            lost = set()
            for number, (body, sent) in enumerate(stored):
                at = sent.physical_offset
                following = stored[number + 1][1].physical_offset if number < 199 else end
                if at < SEGMENT and following > CUT_SHORT:
                    lost.add(number)
                    with pytest.raises(CorruptionError):
                        client.message_at(at)
                    with pytest.raises(CorruptionError):
                        client.pull("t", 0, number)
                    assert client.query_key("t", f"key-{number}").messages == []
                else:
                    assert client.message_at(at).body == body
                    assert client.pull("t", 0, number).messages[0].body == body
                    (found,) = client.query_key("t", f"key-{number}").messages
                    assert found.body == body
            assert 40 < len(lost) < 60
            assert client.send("t", b"goes on", queue_id=0).queue_offset == 200
        assert all(broker.running(room) for room in ROOMS)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENODATA, errno.EBADMSG])
def test_what_the_device_refuses_is_data_loss_for_that_message_alone(error):
    store = Store(4096)
    log = store.start()
    results = store.put_all(*[message(b"%d" % number + bytes(300)) for number in range(40)])
    store.disk.fail("read", segment_path(4096), error=error, repeat=True)
    for result in results:
        at = result.physical_offset
        if 4096 <= at < 8192:
            with pytest.raises(UnreadableError) as caught:
                log.frame_at(at)
            assert os.strerror(error) in str(caught.value)
            assert caught.value.position == at - 4096
        else:
            assert len(log.frame_at(at)) == result.size
    with pytest.raises(UnreadableError):
        list(log.read_range(0, 0, 0))
    assert b"".join(data for _, data in log.read_range(8192, 0, 0))
    assert store.put(b"goes on").queue_offset == 40


def test_a_start_that_must_walk_what_the_device_refuses_cuts_nothing_and_names_the_file():
    """Data behind such a page cannot be read, and may be acknowledged."""
    store = Store(4096)
    store.start()
    store.put_all(*[message(b"%d" % number + bytes(300)) for number in range(40)])
    end = store.end()
    store.kill()
    store.disk.fail("read", segment_path(4096), error=errno.EIO, repeat=True)
    with pytest.raises(StoreRefusedError) as caught:
        store.start()
    assert "Input/output error" in str(caught.value)
    assert "replica or a backup" in str(caught.value)
    store.kill()
    store.disk.clear_faults()
    store.start()
    assert store.end() == end
