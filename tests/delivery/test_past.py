"""The state of the past: what a store's files say of any moment, with the broker up or down."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from stratamq_delivery.past import state_at

import stratamq as stratamq_package
from stratamq.client import connect
from stratamq.errors import InvalidRequestError, NotFoundError, OffsetOutOfRangeError
from tests.cli.processes import stratamq
from tests.delivery.test_service import ROOMS, SETTINGS, arrived
from tests.support.brokers import Broker
from tests.support.waiting import until

GROUP = "billing"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store in which a worker took three messages and acknowledged the second, with a delayed
    message, and a transaction that nobody has ended. By name: how far its log was then."""
    directory = tmp_path_factory.mktemp("past")
    with Broker(directory / "store", directory / "logs", SETTINGS) as broker:
        broker.start(ROOMS)
        ends = {}
        with connect(broker.root, timeout_s=60, retry_timeout_s=60) as client:

            def mark(name: str) -> None:
                ends[name] = client.log_state().appended_offset

            for number in range(3):
                client.send("orders", b"%d" % number, queue_id=0, keys=[f"key-{number}"])
            arrived(client, "orders", 3)
            mark("sent")
            with client.subscribe("orders", GROUP) as messages:
                taken = messages.receive(3)
                assert len(taken) == 3
                taken[1].ack()
                mark("acknowledged")
                client.send("later", b"egg", keys=["egg"], delay_level=18)
                mark("delayed")
                client.send("later", b"year", keys=["year"], delay=timedelta(days=300))
                mark("timed")
                client.transaction("producers").send("paid", b"half")
                mark("half")
                for one in (taken[0], taken[2]):
                    one.ack()
                mark("finished")
        # Files say how far the log is confirmed from a stop on, and a little later while it runs.
        until(lambda: state_at(broker.root).offset >= ends["finished"], "the files know it")
        yield broker, ends


def held(state) -> list[tuple[int, int]]:
    return [(row["offset"], row["attempt"]) for row in state.hand_outs(GROUP)]


def test_any_offset_shows_who_held_what_then(store):
    broker, ends = store
    assert held(state_at(broker.root, offset=ends["sent"])) == []
    then = state_at(broker.root, offset=ends["acknowledged"])
    assert held(then) == [(0, 1), (2, 1)] and then.groups_known
    (queue,) = then.shared_queues(GROUP)
    assert (queue["floor"], queue["next"], queue["unfinished"]) == (0, 3, 2)
    assert held(state_at(broker.root, offset=ends["finished"])) == []
    (queue,) = state_at(broker.root).shared_queues(GROUP)
    assert (queue["floor"], queue["next"], queue["unfinished"]) == (3, 3, 0)


def test_what_waits_names_its_target_and_its_message(store):
    broker, ends = store
    assert not list(state_at(broker.root, offset=ends["acknowledged"]).delayed())
    state = state_at(broker.root)
    row, timed = state.delayed()
    assert (row["topic"], row["keys"], row["level"], row["held"]) == ("later", "egg", 18, False)
    assert row["dueTimestamp"] == row["storeTimestamp"] + 7_200_000
    assert (timed["keys"], timed["level"]) == ("year", 0)
    assert timed["dueTimestamp"] >= timed["storeTimestamp"] + 299 * 86_400_000
    assert not list(state_at(broker.root, offset=ends["timed"]).transactions())
    (half,) = state.transactions()
    assert (half["topic"], half["group"], half["state"]) == ("paid", "producers", "open")


def test_an_offset_inside_a_message_means_its_end(store):
    broker, ends = store
    assert state_at(broker.root, offset=ends["sent"] - 1).offset == ends["sent"]


def test_a_time_shows_what_was_stored_by_then(store):
    broker, _ = store
    row, _ = state_at(broker.root).delayed()
    then = state_at(broker.root, time_ms=row["storeTimestamp"])
    assert row["phyOffset"] in [one["phyOffset"] for one in then.delayed()]
    before = state_at(broker.root, time_ms=row["storeTimestamp"] - 1)
    assert not list(before.delayed()) and before.time_ms == row["storeTimestamp"] - 1


def test_what_the_log_does_not_have_is_an_error(store, tmp_path):
    broker, ends = store
    with pytest.raises(OffsetOutOfRangeError, match="which has 0 to"):
        state_at(broker.root, offset=ends["finished"] + (1 << 40))
    with pytest.raises(InvalidRequestError, match="not both"):
        state_at(broker.root, offset=0, time_ms=0)
    with pytest.raises(NotFoundError):
        state_at(tmp_path)


def lines_of(done) -> list[dict]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_commands_show_the_past(store):
    broker, ends = store
    at = ("--at", str(ends["acknowledged"]))
    described = stratamq("groups", "describe", GROUP, *at, "-o", "json", data=broker.root)
    assert [row["kind"] for row in lines_of(described)] == ["sharedQueue", "handOut", "handOut"]
    waits, _ = lines_of(stratamq("pending", "delayed", "-o", "json", data=broker.root))
    assert waits["keys"] == "egg"
    (half,) = lines_of(stratamq("pending", "transactions", "-o", "json", data=broker.root))
    assert half["state"] == "open"
    held_then = stratamq("pending", "hand-outs", *at, "-o", "json", data=broker.root)
    assert [row["offset"] for row in lines_of(held_then)] == [0, 2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("groups", "describe", GROUP, "--at", "0"), b"was not shared"),
        (("groups", "describe", GROUP, "--at", "soon"), b"an offset of the log, or @TIME"),
        (("pending", "delayed", "--at", "@soon"), b"is not a time"),
        (("pending", "delayed", "--at", "9999999999999999999"), b"is not in the log"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(store, arguments, words):
    broker, _ = store
    done = stratamq(*arguments, data=broker.root)
    assert done.returncode != 0 and words in done.stderr and b"Traceback" not in done.stderr


def test_what_waits_is_a_table(store):
    broker, ends = store
    then = stratamq_package.pending(broker.root, "hand-outs", offset=ends["acknowledged"])
    assert then.column("offset").to_pylist() == [0, 2]
    row, _ = stratamq_package.pending(broker.root, "delayed").to_pylist()
    assert (row["topic"], row["keys"], row["held"]) == ("later", "egg", False)
    stored = datetime.fromtimestamp((row["storeTimestamp"] - 1) / 1000, UTC)
    assert stratamq_package.pending(broker.root, "delayed", time=stored).num_rows == 0
    with pytest.raises(InvalidRequestError, match="is none of"):
        stratamq_package.pending(broker.root, "held")
