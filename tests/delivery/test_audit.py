"""The audit sees each promise that is broken, in logs that a test has written."""

import json
from dataclasses import replace

import numpy as np
import pytest
from stratamq_delivery import delayed_copies
from stratamq_delivery.audit import Audit
from stratamq_delivery.delayed_copies import encode_wish
from stratamq_delivery.entries import Buried, Completed, HandedOut, Moved, Started, Stopped
from stratamq_delivery.records import RECORDS, GroupPlace, GroupRecord, encode
from stratamq_delivery.transaction_records import Outcome

from stratamq.client import connect
from stratamq.formats.dispatch import dispatch_columns
from stratamq.formats.properties import DELIVERED_NOW
from stratamq.formats.source_item import SOURCE_ITEM, encode_source
from stratamq.store.log_pieces import LogPiece
from tests.cli.processes import stratamq
from tests.delivery.test_service import ROOMS, SETTINGS
from tests.delivery.transaction_scene import TransactionBroker
from tests.support.brokers import Broker
from tests.support.logs import batch
from tests.support.waiting import until

PLACE = GroupPlace("billing", "orders", 0, 0)
FAR_MS = 1 << 50


class Written(TransactionBroker):
    """A log in which a test writes what it likes, with a service that decides transactions."""

    def copy(self, source: int, topic: str, body: bytes, **properties: str) -> None:
        """A frame that says that it is a copy of the message at an offset."""
        item = encode_source(self.source(source)).decode().removeprefix(f"{SOURCE_ITEM}\x01")
        properties[SOURCE_ITEM] = item
        own = replace(batch([body], topic, properties=properties), fence=lambda: None)
        assert self.store.put_batch(own).error is None

    def record(self, *entries, is_piece: bool = False) -> None:
        made = GroupRecord(tuple((PLACE, entry) for entry in entries), is_piece, False, is_piece)
        own = replace(batch([encode(made)], RECORDS), fence=lambda: None)
        assert self.store.put_batch(own).error is None

    def faults(self, *, settled: bool = False) -> list[str]:
        found = Audit(0)
        for offset, raw, _ in self.store.members():
            columns = dispatch_columns(raw, offset, np.array([len(raw)], np.uint32))
            found.read(LogPiece(offset, offset + len(raw), columns, raw))
        if settled:
            found.end()
        return found.faults


@pytest.fixture
def log():
    log = Written()
    log.service.follow()
    return log


def given(start: int, end: int, until_ms: int = 0, token: int = 1) -> HandedOut:
    return HandedOut(((start, end),), token, 1, until_ms, "worker", leased=False)


def test_a_delayed_message_early_twice_changed_or_lost(log):
    egg = log.store.put(b"egg", "eggs", delay_level=1).physical_offset
    assert log.faults(settled=True) == [], "it is not due"
    log.store.clock.advance_ms(1_000)
    log.store.put(b"later")
    assert log.faults() == []
    assert [fault[-4:] for fault in log.faults(settled=True)] == ["lost"]
    log.copy(egg, "eggs", b"egg")
    assert log.faults(settled=True) == []
    log.copy(egg, "eggs", b"egg")
    assert ["twice" in fault for fault in log.faults()] == [True]
    other = log.store.put(b"egg", "eggs", delay_level=2).physical_offset
    log.copy(other, "spoons", b"egg")
    assert [word for fault in log.faults()[1:] for word in ("ms early", "another topic") if
            word in fault] == ["ms early", "another topic"]  # fmt: skip


def test_a_copy_that_goes_out_early_needs_a_record_that_it_was_wanted(log):
    """What the copy says of itself proves nothing."""
    eggs = [log.store.put(b"egg", "eggs", delay_level=1) for _ in range(3)]
    due_ms = {one.physical_offset: one.store_timestamp_ms + 1_000 for one in eggs}
    early, unmarked, wanted = due_ms
    log.copy(early, "eggs", b"egg", **{DELIVERED_NOW: str(due_ms[early])})
    for offset in (unmarked, wanted):
        log.put_own(encode_wish(log.source(offset)), delayed_copies.RECORDS)
    log.copy(unmarked, "eggs", b"egg")
    log.copy(wanted, "eggs", b"egg", **{DELIVERED_NOW: str(due_ms[wanted])})
    faults = log.faults(settled=True)
    assert [f"at {offset} was" in fault for offset, fault in zip(
        (early, unmarked), faults, strict=True)] == [True, True]  # fmt: skip
    assert all("ms early" in fault for fault in faults)
    log.put_own(encode_wish(log.source(early)), delayed_copies.RECORDS)
    assert log.faults(settled=True) == faults, "it comes behind the copy"


def test_a_half_message_without_a_commit_after_a_rollback_and_twice(log):
    undecided, dropped, shown = (log.half(b"paid") for _ in range(3))
    log.commit(shown)
    log.decide(dropped, outcome=Outcome.ROLLED_BACK)
    log.service.settle()
    assert log.faults(settled=True) == []
    log.copy(undecided, "orders", b"paid")
    log.copy(dropped, "orders", b"paid")
    log.copy(shown, "orders", b"paid")
    faults = log.faults()
    for sentence in ("nothing had decided it", "after its rollback", "delivered twice"):
        assert sum(sentence in fault for fault in faults) >= 1, sentence


def test_a_half_message_that_was_closed_unseen(log):
    log.half(b"paid")
    queue_offset = next(iter(log.halves().values())).queue_offset
    log.put_own(b"%d" % queue_offset, "RMQ_SYS_TRANS_OP_HALF_TOPIC")
    assert ["in no topic: lost" in fault for fault in log.faults()] == [True]


def test_a_message_that_is_buried_again_after_a_stop_has_another_dead_letter(log):
    """A group that was stopped begins at its floor, which repeats what it had finished above."""
    source = log.store.put(b"egg", "orders").physical_offset
    again = [Started(0), given(0, 2), Buried(((1, 2),), 1, 1, source, 100)]
    log.record(*again)
    log.copy(source, "%DLQ%billing", b"egg")
    log.record(Stopped())
    log.record(*again)
    log.copy(source, "%DLQ%billing", b"egg")
    assert log.faults() == []
    log.copy(source, "%DLQ%billing", b"egg")
    assert ["is in %DLQ%billing twice" in fault for fault in log.faults()] == [True]


def test_a_dead_letter_that_was_replayed_to_another_group(log):
    source = log.store.put(b"egg", "orders").physical_offset
    log.record(Started(0), given(0, 1), Buried(((0, 1),), 1, 1, source, 100))
    letter = log.store.end()
    log.copy(source, "%DLQ%billing", b"egg")
    log.copy(letter, "%RETRY%billing_orders", b"egg")
    assert log.faults() == []
    log.copy(letter, "%RETRY%mail_orders", b"egg")
    assert ["is a dead letter of billing" in fault for fault in log.faults()] == [True]


def test_what_a_group_finished_twice_or_gave_to_two(log):
    log.record(Started(0), given(0, 4), Completed(((0, 2),), 1))
    log.record(Moved(((2, 3),), 1, given(2, 3, FAR_MS, 2)), given(3, 4, FAR_MS, 3))
    assert log.faults() == []
    log.record(Completed(((1, 2),), 1))
    log.record(given(1, 2, FAR_MS, 4))
    log.record(given(2, 3, FAR_MS, 5))
    assert [fault.split(": ")[1] for fault in log.faults()] == [
        "offset 1 of orders 0 was finished twice",
        "offset 1 of orders 0 was handed out after it was finished",
        "offset 2 of orders 0 was handed out to two workers at once",
    ]


def test_a_group_that_stopped_and_started_again_repeats(log):
    log.record(Started(0), given(0, 1), Completed(((0, 1),), 1), Stopped())
    log.record(Started(0), given(0, 1), Completed(((0, 1),), 1))
    assert log.faults() == []


def test_a_log_without_the_beginning_of_a_group(log):
    """A piece of the whole state says what the records that are gone have done."""
    log.record(Completed(((0, 9),), 1))
    log.record(Started(5), Completed(((6, 7),), 0), is_piece=True)
    assert log.faults() == []
    log.record(Started(5), Completed(((6, 7),), 0), is_piece=True)
    log.record(Completed(((6, 7),), 0))
    assert ["finished twice" in fault for fault in log.faults()] == [True]


def test_a_dead_letter_twice_or_lost(log):
    source = log.store.put(b"poison").physical_offset
    log.record(Started(0), given(0, 1), Buried(((0, 1),), 1, 17, source, 100))
    assert [fault[-4:] for fault in log.faults(settled=True)] == ["lost"]
    log.copy(source, "%DLQ%billing", b"poison")
    assert log.faults(settled=True) == []
    log.copy(source, "%DLQ%billing", b"poison")
    assert ["twice" in fault for fault in log.faults()] == [True]
    log.copy(source, "%DLQ%audit", b"poison")
    assert "was not buried" in log.faults()[-1]


def test_the_command_counts_and_ends_with_1_for_a_fault(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", SETTINGS) as broker:
        broker.start(ROOMS)
        with connect(broker.root, retry_timeout_s=60) as client:
            client.send("later", b"egg", delay_level=1)
            with client.transaction("payers") as transaction:
                transaction.send("orders", b"paid")
            until(lambda: client.admin.delivery_state().parts == 0, "none waits")
            until(lambda: len([*client.consume("orders")]) == 1, "the order is there")
        broker.stop()
        done = stratamq("audit", "delivery", "-o", "json", data=broker.root)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["what"]: row["count"] for row in rows} == {
        "committed": 1, "delayed": 1, "delivered": 1, "halves": 1,
    }  # fmt: skip
    assert done.returncode == 0, done.stderr
