"""Shared groups on a broker of real processes: workers share, acknowledgements hold, whatever is
killed."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from stratamq_delivery.audit import audit
from stratamq_delivery.receipts import decode_receipt, encode_receipt

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.api.v1 import dispatcher_pb2
from stratamq.client import connect
from stratamq.client.group_receipts import HandedMessage
from stratamq.client.received import split_frames
from stratamq.errors import InvalidRequestError, UnavailableError
from stratamq.formats.frame import decode
from stratamq.formats.source_item import MessageSource
from stratamq.rpc.framing import PULL_RESPONSE
from stratamq.rpc.methods import METHODS
from stratamq.rpc.status import from_rpc_error
from tests.support.brokers import COMMITLOG, DELIVERY, DISPATCHER, Broker
from tests.support.waiting import until

ROOMS = (COMMITLOG, DISPATCHER, DELIVERY)
WAIT_MS = 20_000
HOUR_MS = 3_600_000


@pytest.fixture(params=["SYNC_FLUSH", "ASYNC_FLUSH"])
def flush(request):
    return request.param


@pytest.fixture
def broker(tmp_path, flush):
    settings = (f"commitlog.flush_disk_type={flush}", "commitlog.flush_interval_ms=20")
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        yield broker.start(ROOMS)


def fill(broker: Broker, first: int, end: int, queues: int = 2) -> None:
    with connect(broker.root, retry_timeout_s=60) as client, client.producer() as producer:
        for number in range(first, end):
            producer.send("orders", b"%d" % number, queue_id=number % queues)


def receive(broker: Broker, client: str = "a", most: int = 32, **fields) -> list:
    group, wait_ms = fields.pop("group", "billing"), fields.pop("wait_ms", WAIT_MS)
    worker = pb.Worker(client_id=client, max_messages=most, **{"invisible_ms": HOUR_MS, **fields})
    request = pb.ReceiveRequest(topic="orders", group=group, workers=[worker], wait_ms=wait_ms)
    return singles(answered(lambda: broker.stub(DELIVERY).Receive, request))


class Given(HandedMessage):
    """A message that a worker was handed."""

    def __init__(self, frame: bytes, given: pb.HandOut) -> None:
        super().__init__(frame)
        self.ticket, self.attempt = given.ticket, given.attempt
        self.invisible_until_ms = given.invisible_until_ms


@dataclass
class Bad:
    receipt: bytes


def singles(response: pb.ReceiveResponse) -> list[Given]:
    return [
        Given(message.frame, one)
        for one in response.hand_outs
        for message in split_frames(one.frames)
    ]


def answered(method: Callable[[], Callable], request: Any) -> Any:
    """The answer, once a delivery that has just been started has taken over."""
    answers: list = []

    def called() -> bool:
        try:
            answers.append(method()(request, timeout=60, wait_for_ready=True))
        except grpc.RpcError as error:
            if "about to take over" not in error.details():
                raise
        return bool(answers)

    until(called, "the delivery answers")
    return answers[0]


def drained(broker: Broker, client: str = "a", **fields) -> list:
    """Everything that is there now."""
    found: list = []
    while some := receive(broker, client, wait_ms=0, **fields):
        found += some
    return found


def settle(broker: Broker, method: str, messages, **fields) -> list:
    request = getattr(pb, f"{method}Request")(
        topic=fields.pop("topic", "orders"),
        group=fields.pop("group", "billing"),
        receipts=[one.receipt for one in messages],
        **fields,
    )
    outcomes = list(answered(lambda: getattr(broker.stub(DELIVERY), method), request).outcomes)
    return outcomes or [pb.SettleOutcome()] * len(messages)


def acknowledge(broker: Broker, messages, **fields) -> list[str]:
    return [one.refusal for one in settle(broker, "AcknowledgeMessages", messages, **fields)]


def numbers(messages) -> list[int]:
    return [int(decode(one.frame).body) for one in messages]


def floors(broker: Broker) -> dict[int, int]:
    request = dispatcher_pb2.GetCommittedOffsetsRequest(group="billing", topic="orders")
    return {
        one.queue_id: one.offset for one in broker.dispatcher.GetCommittedOffsets(request).offsets
    }


def test_workers_share_and_the_floor_is_the_groups_offset(broker):
    fill(broker, 0, 100)
    got = {name: receive(broker, name, most=30) for name in "abcd"}
    assert sorted(numbers([one for some in got.values() for one in some])) == [*range(100)]
    assert not receive(broker, "e", wait_ms=0)
    assert {one.attempt for some in got.values() for one in some} == {1}
    for some in got.values():
        assert acknowledge(broker, some) == [""] * len(some)
    until(lambda: floors(broker) == {0: 50, 1: 50}, "the floors are committed")


def test_a_worker_that_waits_gets_what_arrives(broker):
    fill(broker, 0, 1)
    (first,) = receive(broker)
    assert acknowledge(broker, [first]) == [""]
    found: list = []
    waiting = threading.Thread(target=lambda: found.extend(receive(broker, wait_ms=30_000)))
    waiting.start()
    fill(broker, 1, 2)
    waiting.join(60)
    assert numbers(found) == [1]


def test_what_is_not_acknowledged_in_its_time_is_handed_out_again(broker):
    fill(broker, 0, 3)
    held = receive(broker, invisible_ms=1_000)
    again = sorted(receive(broker, "b"), key=lambda one: decode(one.frame).physical_offset)
    while len(again) < 3:
        again += receive(broker, "b")
    assert sorted(numbers(again)) == [0, 1, 2] and {one.attempt for one in again} == {2}
    assert all("another hand-out has" in refusal for refusal in acknowledge(broker, held))
    assert acknowledge(broker, again) == [""] * 3
    assert acknowledge(broker, again) == [""] * 3, "the first answer may have been lost"


def test_a_message_that_is_returned_comes_again_and_one_that_is_hidden_longer_does_not(broker):
    fill(broker, 0, 2, queues=1)
    first, second = receive(broker, invisible_ms=5_000)
    (returned,) = settle(broker, "ReturnMessages", [first], invisible_ms=1)
    (hidden,) = settle(broker, "ChangeInvisibleTime", [second], invisible_ms=HOUR_MS)
    assert (returned.refusal, hidden.refusal) == ("", "")
    (again,) = receive(broker, "b")
    assert numbers([again]) == [0] and again.attempt == 2
    assert "another hand-out has" in acknowledge(broker, [second])[0], "its receipt was replaced"
    assert acknowledge(broker, [hidden]) == [""]


def test_receipts_that_are_not_the_groups_change_nothing(broker):
    fill(broker, 0, 1)
    (mine,) = receive(broker)
    (other,) = receive(broker, group="audit")
    whole = mine.receipt
    broken = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for bad in (other, *map(Bad, (*broken[::9], broken[-1], b"", b"x", whole[:-1]))):
        assert "no receipt of group billing" in acknowledge(broker, [bad])[0]
    # One outcome for each: the good one counts.
    assert ["no receipt" in one for one in acknowledge(broker, [other, mine])] == [True, False]
    # A group whose name its dead-letter topic cannot have could never bury a message.
    for wrong in ({"most": 1_025}, {"group": "x y"}, {"group": "a/b"}, {"group": "z" * 123}):
        with pytest.raises(grpc.RpcError) as refused:
            receive(broker, **wrong)
        assert isinstance(from_rpc_error(refused.value), InvalidRequestError)


def test_a_receipt_of_a_message_that_the_log_has_lost_finishes_no_other(broker):
    """After a loss of power another message may have its offset, which no worker had yet."""
    fill(broker, 0, 1)
    (given,) = receive(broker)
    run = decode_receipt(given.receipt, "billing", "orders", 0)
    (receipt,) = run.each()
    generation, offset = receipt.source
    for other in (generation + 1, 0):
        lost = receipt._replace(source=MessageSource(other, offset))
        bad = Bad(encode_receipt(run.place, lost))
        assert "the log has lost the message" in acknowledge(broker, [bad])[0]
    broker.kill_all()
    broker.start(ROOMS)
    assert acknowledge(broker, [given]) == [""], "a new generation, and the message is there"


def test_an_acknowledgement_that_is_given_again_finishes_nothing_twice(broker):
    """Its answer was lost, perhaps. The log says once that the message is finished."""
    fill(broker, 0, 3, queues=1)
    got = receive(broker)
    while len(got) < 3:
        got += receive(broker)
    assert acknowledge(broker, got[1:2]) == [""]
    assert acknowledge(broker, got) == ["", "", ""]
    assert acknowledge(broker, got) == ["", "", ""]
    broker.stop()
    found = audit(broker.root)
    assert (found.counts["acknowledged"], found.faults) == (3, [])


def test_what_was_there_is_handed_out_though_the_dispatcher_was_not_there_at_first(broker):
    fill(broker, 0, 10)
    broker.kill(DISPATCHER)
    with pytest.raises(grpc.RpcError) as refused:
        receive(broker, wait_ms=0)
    assert isinstance(from_rpc_error(refused.value), UnavailableError)
    broker.start((DISPATCHER,))
    with connect(broker.root, retry_timeout_s=60) as client:
        reader, got = client.subscribe("orders", "billing"), []
        until(lambda: got.extend(reader.receive(40)) or len(got) >= 10, "all came to a worker")
    assert sorted(int(one.body) for one in got) == [*range(10)]


def test_a_group_is_pulled_or_shared(broker):
    fill(broker, 0, 1)
    pull = dispatcher_pb2.PullRequest(topic="orders", group="billing", client_id="old")
    broker.dispatcher.Pull(pull)
    with pytest.raises(grpc.RpcError) as refused:
        receive(broker)
    assert "is read by 1 clients" in str(from_rpc_error(refused.value))
    assert numbers(receive(broker, group="audit")) == [0]
    with pytest.raises(grpc.RpcError) as refused:
        broker.dispatcher.Pull(
            dispatcher_pb2.PullRequest(topic="orders", group="audit", client_id="o")
        )
    assert "group audit is shared" in str(from_rpc_error(refused.value))


def test_what_was_acknowledged_never_comes_back_whatever_is_killed(broker):
    """Everything is killed once the last acknowledgement is answered, again and again."""
    acknowledged: set[int] = set()
    fill(broker, 0, 40)
    for round_number in range(3):
        got = receive(broker, most=10)
        while len(got) < 10:
            got += receive(broker, most=10 - len(got))
        assert not acknowledged & {*numbers(got)}
        settled = got[: 4 + round_number]
        assert acknowledge(broker, settled) == [""] * len(settled)
        acknowledged |= {*numbers(settled)}
        # What is left of the hand-out is ready again at once.
        settle(broker, "ReturnMessages", got[len(settled) :], invisible_ms=1)
        broker.kill_all()
        if round_number == 1:
            (broker.root / "stratamq" / "delivery.json").unlink()
        broker.start(ROOMS)
    rest = drained(broker)
    assert sorted([*acknowledged, *numbers(rest)]) == [*range(40)], "none lost, none twice"


def test_what_is_held_stays_hidden_and_counted_when_the_service_is_killed(broker):
    fill(broker, 0, 10, queues=1)
    held = receive(broker, most=5, invisible_ms=HOUR_MS)
    settle(broker, "ReturnMessages", held[:2], invisible_ms=1)
    broker.kill(DELIVERY)
    broker.start((DELIVERY,))
    rest = drained(broker, "b")
    while len(rest) < 7:
        rest += receive(broker, "b")
    assert {number: one.attempt for number, one in zip(numbers(rest), rest, strict=True)} == {
        0: 2, 1: 2, 5: 1, 6: 1, 7: 1, 8: 1, 9: 1,
    }  # fmt: skip
    assert acknowledge(broker, held[2:]) == [""] * 3, "their receipts are good"


def test_a_receive_with_the_same_attempt_id_gets_the_same_messages(broker):
    fill(broker, 0, 10)
    first = receive(broker, most=3, attempt_id="lost")
    again = receive(broker, most=3, attempt_id="lost")
    assert [one.receipt for one in again] == [one.receipt for one in first] and len(first) == 3
    assert acknowledge(broker, first[:1]) == [""]
    broker.kill(DELIVERY)
    broker.start((DELIVERY,))
    rest = receive(broker, most=3, attempt_id="lost")
    assert [one.receipt for one in rest] == [one.receipt for one in first[1:]]
    others = receive(broker, "b", attempt_id="lost") + receive(broker, attempt_id="other")
    assert {*numbers(others)} == {*range(10)} - {*numbers(first)}
    assert acknowledge(broker, rest) == ["", ""]


def held(broker: Broker):
    request = pb.ListHandOutsRequest(group="billing")
    return broker.stub(DELIVERY).ListHandOuts(request, timeout=60, wait_for_ready=True)


def renew(broker: Broker, client: str, lease_ms: int) -> int:
    request = pb.RenewLeaseRequest(group="billing", client_id=client, lease_ms=lease_ms)
    return broker.stub(DELIVERY).RenewLease(request, timeout=60).until_ms


def test_what_a_worker_that_lives_holds_stays_hidden(tmp_path):
    """It does as long as the lease of the worker lasts, and is its own again until then."""
    with Broker(tmp_path / "store", tmp_path / "logs") as broker:
        broker.start(ROOMS)
        fill(broker, 0, 4, queues=1)
        living = receive(broker, "a", most=2, invisible_ms=1_000, leased=True)
        free = receive(broker, "b", most=1, invisible_ms=1_000)
        until_ms = renew(broker, "a", 60_000)
        assert until_ms > living[0].invisible_until_ms + 50_000
        again = receive(broker, "c", most=1)
        while numbers(again) != numbers(free):
            again = receive(broker, "c", most=1)
        assert again[0].attempt == 2
        assert {
            one.until_ms >= until_ms for one in held(broker).hand_outs if one.client_id == "a"
        } == {True}
        assert acknowledge(broker, living[:1]) == [""], "its receipt is good as long as the lease"
        # A service that starts knows no lease, and takes it that each client lives.
        broker.kill(DELIVERY)
        broker.start((DELIVERY,))
        kept = [one for one in held(broker).hand_outs if one.client_id == "a"]
        assert [one.until_ms - held(broker).now_ms > 20_000 for one in kept] == [True]
        assert not receive(broker, "c", wait_ms=0)
        assert acknowledge(broker, living[1:]) == [""]


ATTEMPTS = "delivery.shared_attempts=2"


@pytest.fixture
def impatient(tmp_path):
    with Broker(tmp_path / "store", tmp_path / "logs", [ATTEMPTS]) as broker:
        yield broker.start(ROOMS)


def dead_letters(broker: Broker, group: str = "billing") -> list:
    request = dispatcher_pb2.PullRequest(topic=f"%DLQ%{group}", max_messages=32)
    frames, letters = PULL_RESPONSE.decode(pull_on(broker)(request))[1][0], []
    while frames:
        frame = decode(bytes(frames))
        letters.append(frame)
        frames = frames[frame.total_size :]
    return letters


def pull_on(broker: Broker):
    return METHODS["Pull"].on(broker.channel(DISPATCHER))


def test_each_group_has_its_own_dead_letter_of_a_message(impatient):
    """Through a kill, whose fold has both burials from the snapshot or the log."""
    broker, groups = impatient, ("billing", "audit")
    fill(broker, 0, 3, queues=1)
    for _ in range(2):
        for group in groups:
            got = receive(broker, group=group)
            while len(got) < 3:
                got += receive(broker, group=group)
            settle(broker, "ReturnMessages", got, group=group, invisible_ms=1)
    for group in groups:
        assert not receive(broker, group=group, wait_ms=0)
    broker.kill(DELIVERY)
    broker.start((DELIVERY,))
    for group in groups:
        until(lambda group=group: len(dead_letters(broker, group)) == 3, f"{group} has its three")
    broker.kill_all()
    broker.start(ROOMS)
    for group in groups:
        assert not receive(broker, group=group, wait_ms=1_000)
        assert sorted(one.body for one in dead_letters(broker, group)) == [b"0", b"1", b"2"]


def test_what_failed_too_often_is_a_dead_letter_once_without_a_worker_that_asks(impatient):
    broker = impatient
    fill(broker, 0, 3, queues=1)
    first = receive(broker)
    assert acknowledge(broker, first[1:2]) == [""]
    settle(broker, "ReturnMessages", [first[0], first[2]], invisible_ms=1)
    again = receive(broker, invisible_ms=1_000)
    while len(again) < 2:
        again += receive(broker, invisible_ms=1_000)
    assert {one.attempt for one in again} == {2}
    # A hand-out is answered before its record is in the log; this is answered behind it.
    kept = settle(broker, "ChangeInvisibleTime", again, invisible_ms=1_000)
    assert [one.refusal for one in kept] == ["", ""]
    broker.kill(DELIVERY)
    broker.start((DELIVERY,))
    until(lambda: len(dead_letters(broker)) == 2, "both are dead letters")
    assert not receive(broker, wait_ms=0)
    broker.kill_all()
    broker.start(ROOMS)
    assert not receive(broker, wait_ms=1_000)
    letters = dead_letters(broker)
    assert sorted(letter.body for letter in letters) == [b"0", b"2"]
    for letter in letters:
        assert letter.reconsume_times == 2
        assert letter.properties["DLQ_ORIGIN_TOPIC"] == "orders"
    until(lambda: floors(broker) == {0: 3}, "they are finished")


def test_a_stop_waits_neither_for_workers_nor_for_producers_that_are_asked(tmp_path):
    settings = ("delivery.stop_grace_ms=600000",)
    with Broker(tmp_path / "store", tmp_path / "logs", settings) as broker:
        broker.start(ROOMS)
        fill(broker, 0, 1)
        assert len(receive(broker)) == 1
        delivery, worker = broker.stub(DELIVERY), pb.Worker(client_id="b")
        checks = delivery.CheckTransactions(
            pb.CheckTransactionsRequest(producer_group="payers", topics=["orders"])
        )
        waiting = delivery.Receive.future(
            pb.ReceiveRequest(topic="orders", group="billing", workers=[worker], wait_ms=30_000)
        )
        delivery.GetDeliveryStatus(pb.GetDeliveryStatusRequest())  # both calls have begun
        broker.terminate(DELIVERY)
        for ended in (waiting.result, lambda: next(checks)):
            with pytest.raises(grpc.RpcError) as refused:
                ended()
            assert isinstance(from_rpc_error(refused.value), UnavailableError)
