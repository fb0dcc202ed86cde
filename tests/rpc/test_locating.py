"""Which broker is taken, by what its services and its cluster answer, and when."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import pytest

from stratamq.api.v1 import broker_pb2, commitlog_pb2, common_pb2
from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.files.simulated_time import SimulatedClock
from stratamq.rpc.address import advertised_address, seen_from
from stratamq.rpc.locating import FoundBroker, found_broker, locate, survey
from stratamq.rpc.questions import GRACE_S, LONGEST_ANSWER_S, Silence
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER, INDEX

GONE = UnavailableError("Deadline Exceeded")
SLAVE, MASTER = common_pb2.BROKER_ROLE_SLAVE, common_pb2.BROKER_ROLE_SYNC_MASTER
DEAD = UnavailableError("Connection refused")


def description(answered_by: str = COMMITLOG, name: str = "n", **services: str):
    return broker_pb2.DescribeBrokerResponse(
        broker_name=name,
        services=[
            broker_pb2.ServicePlace(service=room, address=address)
            for room, address in services.items()
        ],
        answered_by=answered_by,
    )


def status(role: int, term: int = 0):
    return commitlog_pb2.GetStatusResponse(role=role, term=term)


@dataclass(frozen=True)
class Late:
    """A reply that comes after so many seconds; by default the error of a host that is gone."""

    seconds: float = LONGEST_ANSWER_S
    reply: Any = GONE


class Client:
    """Runs plans over a network, by (address, call); what is not there is dead."""

    def __init__(self, silent: Collection[str] = ()) -> None:
        self.clock = SimulatedClock()
        self.silence = Silence(silent)
        self.seconds = 0.0
        """How long the last plan took."""
        self._coming: list[tuple[int, Any, Any]] = []

    def locate(self, seeds, before, network: dict, *others) -> FoundBroker:
        plan = locate(seeds, before, *others, silence=self.silence, clock=self.clock)
        return self.run(plan, network)

    def survey(self, seeds, network: dict):
        return self.run(survey(seeds, self.silence, self.clock), network)

    def run(self, plan, network: dict):
        begin_ns = self.clock.monotonic_ns()
        left, self._coming = self._coming, []
        try:
            turn = next(plan)
            while True:
                turn = plan.send(self._turn(turn, network))
        except StopIteration as end:
            self.seconds = (self.clock.monotonic_ns() - begin_ns) / 1e9
            return end.value
        finally:
            for _, question, reply in [*left, *self._coming]:
                self.silence.heard(question, reply)  # late, and before the next plan
            self._coming = []

    def _turn(self, turn, network: dict) -> list[tuple[Any, Any]]:
        now_ns = self.clock.monotonic_ns()
        for one in turn.questions:
            reply = network.get((one.address, one.method.path.rpartition("/")[2]), DEAD)
            reply = reply() if callable(reply) else reply
            late = reply if isinstance(reply, Late) else Late(0, reply)
            self._coming.append((now_ns + round(late.seconds * 1e9), one, late.reply))
        assert self._coming, "it waits for nothing"
        next_ns = min(due_ns for due_ns, _, _ in self._coming)
        until_ns = next_ns if turn.wait_s is None else now_ns + round(turn.wait_s * 1e9)
        self.clock.advance_ms(-(-max(0, min(next_ns, until_ns) - now_ns) // 1_000_000))
        come = [one for one in self._coming if one[0] <= self.clock.monotonic_ns()]
        self._coming = [one for one in self._coming if one not in come]
        for _, question, reply in come:
            self.silence.heard(question, reply)
        return [(question, reply) for _, question, reply in come]


def located(seeds, before, network: dict, *others) -> FoundBroker:
    return Client().locate(seeds, before, network, *others)


def broker(host: str, state=None, name: str = "n") -> dict:
    """The network's answers of a broker at `host`."""
    addresses = {COMMITLOG: f"{host}:1", DISPATCHER: f"{host}:2"}
    answers = {
        (address, "DescribeBroker"): description(room, name, **addresses)
        for room, address in addresses.items()
    }
    return answers if state is None else answers | {(f"{host}:1", "GetStatus"): state}


# --- one ---


def test_any_service_leads_to_all():
    for port in (1, 2):
        found = located([f"a:{port}"], None, broker("a"))
        assert found.addresses == {COMMITLOG: "a:1", DISPATCHER: "a:2"}


def test_a_broker_whose_named_service_is_away_is_found_by_another_one_of_it():
    network = broker("a")
    before = located(["a:1"], None, network)
    del network["a:1", "DescribeBroker"]
    network["a:2", "DescribeBroker"] = description(DISPATCHER, commitlog="a:7", dispatcher="a:2")
    assert located(["a:1"], before, network).address(COMMITLOG) == "a:7"
    with pytest.raises(UnavailableError, match="nothing listens at a:1"):
        located(["a:1"], None, network)


@pytest.mark.parametrize(
    ("address", "advertised_host", "advertised", "seen"),
    [
        ("0.0.0.0:5", "", ":5", "far.example:5"),
        ("[::]:5", "", ":5", "far.example:5"),
        ("0.0.0.0:5", "index", "index:5", "index:5"),
        ("10.0.0.1:5", "", "10.0.0.1:5", "10.0.0.1:5"),
        ("[fd00::1]:5", "", "[fd00::1]:5", "[fd00::1]:5"),
        ("unix:/run/x", "", "unix:/run/x", "unix:/run/x"),
    ],
)
def test_what_listens_on_every_address_is_where_its_broker_was_reached(
    address, advertised_host, advertised, seen
):
    assert advertised_address(address, advertised_host) == advertised
    assert seen_from("far.example:1", advertised) == seen
    assert seen_from("[fd00::9]:1", ":5") == "[fd00::9]:5"


def test_a_service_of_its_own_machine_alone_is_no_address_of_another_one():
    advertised = {COMMITLOG: ":1", DISPATCHER: "127.0.0.1:2"}
    far = found_broker("10.0.0.9:1", description(**advertised))
    assert far.address(COMMITLOG) == "10.0.0.9:1"
    with pytest.raises(UnavailableError, match=r"only its own machine reaches.*advertised_host"):
        far.address(DISPATCHER)
    for here in ("127.0.0.1:1", "localhost:1", "[::1]:1"):
        assert found_broker(here, description(**advertised)).address(DISPATCHER) == "127.0.0.1:2"


def test_a_tunnel_to_a_loopback_address_leads_to_the_others_at_its_end():
    described = description(COMMITLOG, commitlog="127.0.0.1:1", index="127.0.0.1:3")
    assert found_broker("tunnel:1", described).address(INDEX) == "tunnel:3"


# --- several ---


def test_the_master_of_the_highest_term_is_taken():
    network = (
        broker("a", status(MASTER, 1))  # it has not learned of its successor
        | broker("b", status(SLAVE, 9))
        | broker("c", status(MASTER, 9))
    )
    for seeds in (["a:1", "b:1", "c:1"], ["c:2", "b:2", "a:2"]):
        assert located(seeds, None, network).address(COMMITLOG) == "c:1"


def test_without_a_master_the_one_that_was_taken_is_kept_as_long_as_it_answers():
    network = broker("a", status(SLAVE)) | broker("b", status(SLAVE))
    b = located(["b:1"], None, network)
    assert located(["a:1", "b:1"], b, network).address(COMMITLOG) == "b:1"
    restarting = {key: value for key, value in network.items() if key[0] != "b:1"}
    assert located(["a:1", "b:1"], b, restarting).address(DISPATCHER) == "b:2"
    gone = broker("a", status(SLAVE))
    assert located(["a:1", "b:1"], b, gone).address(DISPATCHER) == "a:2"


def test_a_log_that_answers_goes_before_one_that_does_not():
    network = broker("a") | broker("b", status(SLAVE))
    assert located(["a:2", "b:2"], None, network).address(COMMITLOG) == "b:1"


def test_two_names_of_one_broker_are_one():
    advertised = {COMMITLOG: "10.0.0.1:1"}
    network = {
        ("x:1", "DescribeBroker"): description(**advertised),
        ("y:1", "DescribeBroker"): description(**advertised),
    }
    assert located(["x:1", "y:1"], None, network).address(COMMITLOG) == "10.0.0.1:1"


def test_brokers_that_are_not_of_one_cluster_are_refused():
    network = broker("a", status(MASTER)) | broker("b", status(MASTER))
    with pytest.raises(InvalidRequestError, match="both masters of term 0"):
        located(["a:1", "b:1"], None, network)
    network = broker("a", status(MASTER)) | broker("b", status(SLAVE), name="other")
    with pytest.raises(InvalidRequestError, match="different names"):
        located(["a:1", "b:1"], None, network)


def test_every_address_is_named_when_none_answers():
    other = StrataError("what")
    other.fields["status"] = "UNIMPLEMENTED"
    with pytest.raises(UnavailableError, match=r"none of the 2.*at a:1.*at b:1"):
        located(["a:1", "b:1"], None, {("a:1", "DescribeBroker"): other})
    with pytest.raises(InvalidRequestError, match="no service of StrataMQ"):
        located(["a:1"], None, {("a:1", "DescribeBroker"): other})


# --- brokers of several names ---


def two_names() -> dict:
    a = broker("a", status(MASTER, 3), "x") | broker("b", status(MASTER, 5), "x")
    return a | broker("c", status(MASTER, 9), "y")


def test_a_survey_has_the_addresses_of_each_name_and_those_that_give_none():
    nameless = {("d:1", "DescribeBroker"): description(DISPATCHER, "", dispatcher="d:1")}
    found = Client().survey(["c:1", "a:1", "b:2", "d:1", "e:1"], two_names() | nameless)
    assert found.names == {"x": ("a:1", "b:2"), "y": ("c:1",)}
    assert set(found.silent) == {"d:1", "e:1"}
    assert "its log service is not running" in found.silent["d:1"].message
    with pytest.raises(UnavailableError):
        Client().survey(["e:1", "f:1"], {})


def test_among_several_names_one_is_chosen():
    seeds = ["a:1", "b:1", "c:1"]
    with pytest.raises(InvalidRequestError, match=r"\(x, y\).*broker=NAME.*--broker NAME"):
        located(seeds, None, two_names())
    assert located(seeds, None, two_names(), "x").address(COMMITLOG) == "b:1"
    assert located(seeds, None, two_names(), "y").address(COMMITLOG) == "c:1"
    with pytest.raises(InvalidRequestError, match="the name z answers; there are x, y"):
        located(seeds, None, two_names(), "z")
    gone = {key: value for key, value in two_names().items() if not key[0].startswith("c")}
    with pytest.raises(UnavailableError, match="the name y answers; there are x"):
        located(seeds, None, gone, "y")


def test_a_broker_that_gives_no_name_is_that_of_its_address_or_the_one_before():
    """Its log service has stopped; what is stored can be read."""
    nameless = {
        (address, "DescribeBroker"): description(DISPATCHER, "", dispatcher="c:2")
        for address in ("c:1", "c:2")
    }
    rest = {key: value for key, value in two_names().items() if not key[0].startswith("c")}
    network = rest | nameless
    seeds = ["a:1", "c:2"]
    assert located(seeds, None, network, "y", ["c:2"]).address(DISPATCHER) == "c:2"
    before = located(["c:1"], None, two_names())
    assert located(seeds, before, network, "y").address(DISPATCHER) == "c:2"
    with pytest.raises(InvalidRequestError):
        located(seeds, None, network, "y")
    assert located(seeds, None, network, "x").address(COMMITLOG) == "a:1"


# --- more addresses, for when there is no master ---


def of_generation(number: int, term: int = 1):
    generations = [common_pb2.Generation(generation=number)]
    return commitlog_pb2.GetStatusResponse(role=MASTER, term=term, generations=generations)


def test_other_addresses_are_asked_when_there_is_no_master_at_the_own_ones_and_not_before():
    network = broker("a", status(MASTER, 1)) | broker("b", status(SLAVE)) | broker("x", name="x")
    asked: list[str] = []

    def wider():
        asked.append("wider")
        return ["a:1", "b:1", "x:1"]

    assert located(["a:1"], None, network, "n", ["a:1"], wider).asked == "a:1"
    assert asked == []
    assert located(["b:1"], None, network, "n", ["b:1"], wider).asked == "a:1"
    assert located(["gone:1"], None, network, "n", ["gone:1"], wider).asked == "a:1"
    assert asked == ["wider"] * 2


def test_a_slave_is_taken_while_no_address_leads_to_a_master():
    network = broker("b", status(SLAVE))
    assert located(["b:1"], None, network, "n", ["b:1"], lambda: ["a:1"]).asked == "b:1"


def test_one_broker_at_two_addresses_is_no_second_master():
    network = broker("v4", of_generation(7)) | broker("v6", of_generation(7))
    assert located(["v4:1", "v6:1"], None, network).asked == "v4:1"
    other = broker("v4", of_generation(7)) | broker("v6", of_generation(8))
    with pytest.raises(InvalidRequestError, match="both masters"):
        located(["v4:1", "v6:1"], None, other)


# --- hosts that are gone ---

MEMBERS = ("a:1", "b:1", "c:1")
"""Of the tests below: three members, of which `a` was the master in term 1."""


def member(name: str, role: int, term: int, acknowledgements: int = 1, **fields):
    """What a member of three answers."""
    return commitlog_pb2.GetStatusResponse(
        role=role,
        term=term,
        member=name,
        members=common_pb2.Members(
            version=1,
            required_acknowledgements=acknowledgements,
            members=[common_pb2.Member(slot=slot, name=one) for slot, one in enumerate("abc")],
        ),
        **fields,
    )


def gone(host: str) -> dict:
    return {key: Late() for key in broker(host, status(SLAVE))}


def slow(answers: dict, seconds: float) -> dict:
    return {key: Late(seconds, reply) for key, reply in answers.items()}


@pytest.fixture
def a() -> FoundBroker:
    """The master that was found before."""
    network = broker("a", member("a", MASTER, 1)) | broker("b", member("b", SLAVE, 1))
    return located(["a:1", "b:1"], None, network, "n")


def test_a_host_that_is_gone_holds_up_a_search_no_longer_than_the_grace(a):
    """Two of three members, which k + 1 are, have no later term than the master's."""
    client = Client()
    network = broker("a", member("a", MASTER, 1)) | broker("b", member("b", SLAVE, 1)) | gone("c")
    for before in (a, None):
        assert client.locate(MEMBERS, before, network, "n").asked == "a:1"
        assert client.seconds <= GRACE_S
        client.silence = Silence()


def test_an_address_that_was_silent_is_asked_and_not_waited_for(a):
    client = Client()
    network = broker("a", member("a", MASTER, 1)) | broker("b", member("b", SLAVE, 1)) | gone("c")
    client.locate(MEMBERS, a, network, "n")
    assert "c:1" in client.silence
    assert client.locate(MEMBERS, a, network, "n").asked == "a:1"
    assert client.seconds == 0


def test_without_a_master_a_host_that_is_gone_holds_up_one_search_and_the_next_ones_for_the_grace(
    a,
):
    client = Client()
    network = gone("a") | broker("b", member("b", SLAVE, 1)) | broker("c", member("c", SLAVE, 1))
    client.locate(MEMBERS, a, network, "n")
    assert LONGEST_ANSWER_S <= client.seconds < LONGEST_ANSWER_S + GRACE_S
    for _ in range(3):
        client.locate(MEMBERS, a, network, "n")
        assert client.seconds <= GRACE_S


def test_a_master_that_is_promoted_while_a_host_that_is_gone_is_waited_for_ends_the_search(a):
    statuses = iter([member("b", SLAVE, 1), member("b", SLAVE, 2)])
    network = gone("a") | broker("c", member("c", SLAVE, 2))
    network |= broker("b", lambda: next(statuses, member("b", MASTER, 2)))
    client = Client()
    assert client.locate(MEMBERS, a, network, "n").asked == "b:1"
    assert client.seconds <= 3 * GRACE_S


def test_more_addresses_are_asked_while_a_host_that_is_gone_is_waited_for(a):
    """As a member of another address than before."""
    client = Client()
    network = gone("a") | broker("b", member("b", SLAVE, 2)) | broker("d", member("c", MASTER, 2))
    found = client.locate(["a:1", "b:1"], a, network, "n", ["a:1", "b:1"], lambda: ["d:1"])
    assert found.asked == "d:1"
    assert client.seconds <= 2 * GRACE_S


def test_more_addresses_are_asked_when_the_only_master_has_a_later_one(a):
    network = broker("a", member("a", MASTER, 1)) | broker("b", member("b", SLAVE, 2))
    network |= broker("d", member("c", MASTER, 2))
    found = located(["a:1", "b:1"], a, network, "n", ["a:1", "b:1"], lambda: ["d:1"])
    assert found.asked == "d:1"


def test_a_master_of_a_later_term_than_before_is_not_held_up_by_a_host_that_is_gone(a):
    """Of two members one is left, which an operator has promoted."""
    client = Client()
    network = gone("a") | broker("b", member("b", MASTER, 2, acknowledgements=2))
    assert client.locate(MEMBERS[:2], a, network, "n").asked == "b:1"
    assert client.seconds <= GRACE_S


@pytest.mark.parametrize("seconds", [2 * GRACE_S, 0.9 * LONGEST_ANSWER_S])
@pytest.mark.parametrize("again", [False, True], ids=["first search", "later search"])
def test_a_stale_master_loses_against_a_newer_one_that_answers_slowly(a, again, seconds):
    client = Client()
    network = broker("a", member("a", MASTER, 1)) | slow(
        broker("b", member("b", MASTER, 2)), seconds / 2
    )
    for others in (gone("c"), broker("c", member("c", SLAVE, 2)), {}):
        before = a if again else None
        assert client.locate(MEMBERS, before, network | others, "n").asked == "b:1"
        assert "b:1" not in client.silence


def test_a_master_of_a_term_before_the_latest_known_ends_no_search(a):
    """The newer one was promoted by force, or no other member that answers has heard of it."""
    slow_master = slow(broker("b", member("b", MASTER, 2)), 2 * GRACE_S)
    newer = located(["b:1", "b:2"], a, slow_master, "n")
    network = broker("a", member("a", MASTER, 1)) | slow_master
    client = Client()
    both = network | broker("c", member("c", SLAVE, 1))
    assert client.locate(MEMBERS, newer, both, "n").asked == "b:1"
    client = Client(silent=["b:1", "b:2", "c:1"])
    assert client.locate(MEMBERS, newer, network | gone("c"), "n").asked == "b:1"


@pytest.mark.parametrize(
    "stale",
    [
        member("a", MASTER, 1, held_reason="cut off"),
        member("a", common_pb2.BROKER_ROLE_ASYNC_MASTER, 1, lease_required=True),
        member("a", MASTER, 1, lead_ended_reason="b takes over"),
        member("a", MASTER, 1, acknowledgements=2),  # k + 1 are three
    ],
    ids=["held", "lease over", "lead ended", "not enough members"],
)
def test_a_master_that_may_have_a_successor_is_no_reason_to_stop_waiting(a, stale):
    network = broker("a", stale) | broker("b", member("b", SLAVE, 1))
    network |= slow(broker("c", member("c", MASTER, 3)), 2 * GRACE_S)
    assert located(MEMBERS, a, network, "n").asked == "c:1"


def test_a_member_that_counts_for_nothing_proves_nothing(a):
    network = broker("a", member("a", MASTER, 1)) | broker(
        "b", member("b", SLAVE, 1, rejoining=True)
    )
    network |= slow(broker("c", member("c", MASTER, 3)), 2 * GRACE_S)
    assert located(MEMBERS, a, network, "n").asked == "c:1"


def test_a_member_that_comes_back_is_taken(a):
    client = Client(silent=["b:1", "b:2"])
    network = broker("a", member("a", SLAVE, 2)) | broker("c", member("c", SLAVE, 2))
    back = broker("b", member("b", MASTER, 2))
    assert client.locate(MEMBERS, a, network | back, "n").asked == "b:1"
    # One that is slower than the grace is waited for from its first answer on.
    client = Client(silent=["b:1", "b:2"])
    client.locate(MEMBERS, a, network | slow(back, 2 * GRACE_S), "n")
    assert client.locate(MEMBERS, a, network | slow(back, 2 * GRACE_S), "n").asked == "b:1"


def test_when_nothing_else_answers_silent_addresses_are_waited_for(a):
    client = Client(silent=MEMBERS)
    network = slow(broker("b", member("b", MASTER, 2)), 4 * GRACE_S)
    assert client.locate(MEMBERS, a, network, "n").asked == "b:1"


def test_of_brokers_whose_name_is_not_known_all_are_waited_for():
    """They may be of another one."""
    network = broker("a", member("a", MASTER, 1)) | broker("b", member("b", SLAVE, 1))
    network |= slow(broker("c", status(MASTER), name="other"), 4 * GRACE_S)
    with pytest.raises(InvalidRequestError, match="different names"):
        located(MEMBERS, None, network)


def test_logs_that_answer_now_and_then_do_not_hold_up_a_search_for_ever(a):
    network = gone("a")
    for name in "bc":
        replies = iter([member(name, SLAVE, 1), Late()] * 100)
        network |= broker(name, lambda replies=replies: next(replies))
    client = Client()
    client.locate(MEMBERS, a, network, "n")
    assert client.seconds <= 3 * LONGEST_ANSWER_S


def test_a_first_survey_waits_for_all_and_later_ones_not_for_what_was_silent():
    client = Client()
    network = broker("a", name="x") | slow(broker("b", name="y"), 4 * GRACE_S) | gone("c")
    found = client.survey(MEMBERS, network)
    assert found.names == {"x": ("a:1",), "y": ("b:1",)}
    assert set(found.silent) == {"c:1"}
    assert client.seconds >= LONGEST_ANSWER_S
    found = client.survey(MEMBERS, network)
    assert found.names == {"x": ("a:1",), "y": ("b:1",)}
    assert "c:1 does not answer" in found.silent["c:1"].message
    assert client.seconds <= 4 * GRACE_S
    assert client.survey(["c:1", "a:1"], slow(broker("c"), GRACE_S / 2) | network).names
