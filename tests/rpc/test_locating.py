"""Which broker is taken, by what its services and its cluster answer."""

import pytest

from stratamq.api.v1 import broker_pb2, commitlog_pb2, common_pb2
from stratamq.errors import InvalidRequestError, StrataError, UnavailableError
from stratamq.rpc.address import advertised_address, seen_from
from stratamq.rpc.locating import FoundBroker, found_broker, locate, survey
from stratamq.rpc.methods import COMMITLOG, DISPATCHER, INDEX

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


def run(plan, network: dict) -> FoundBroker:
    """Answer a plan's questions by (address, call); what is not there is dead."""
    try:
        questions = next(plan)
        while True:
            asked = [(one.address, one.method.path.rpartition("/")[2]) for one in questions]
            questions = plan.send([network.get(key, DEAD) for key in asked])
    except StopIteration as end:
        return end.value


def broker(host: str, state=None, name: str = "n") -> dict:
    """The network's answers of a broker at `host`."""
    told = {COMMITLOG: f"{host}:1", DISPATCHER: f"{host}:2"}
    answers = {
        (address, "DescribeBroker"): description(room, name, **told)
        for room, address in told.items()
    }
    return answers if state is None else answers | {(f"{host}:1", "GetStatus"): state}


# --- one ---


def test_any_service_leads_to_all():
    for port in (1, 2):
        found = run(locate([f"a:{port}"], None), broker("a"))
        assert found.addresses == {COMMITLOG: "a:1", DISPATCHER: "a:2"}


def test_a_broker_whose_named_service_is_away_is_found_by_another_one_of_it():
    network = broker("a")
    before = run(locate(["a:1"], None), network)
    del network["a:1", "DescribeBroker"]
    network["a:2", "DescribeBroker"] = description(DISPATCHER, commitlog="a:7", dispatcher="a:2")
    assert run(locate(["a:1"], before), network).address(COMMITLOG) == "a:7"
    with pytest.raises(UnavailableError, match="nothing listens at a:1"):
        run(locate(["a:1"], None), network)


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
    told = {COMMITLOG: ":1", DISPATCHER: "127.0.0.1:2"}
    far = found_broker("10.0.0.9:1", description(**told))
    assert far.address(COMMITLOG) == "10.0.0.9:1"
    with pytest.raises(UnavailableError, match=r"only its own machine reaches.*advertised_host"):
        far.address(DISPATCHER)
    for here in ("127.0.0.1:1", "localhost:1", "[::1]:1"):
        assert found_broker(here, description(**told)).address(DISPATCHER) == "127.0.0.1:2"


def test_a_tunnel_to_a_loopback_address_leads_to_the_others_at_its_end():
    told = description(COMMITLOG, commitlog="127.0.0.1:1", index="127.0.0.1:3")
    assert found_broker("tunnel:1", told).address(INDEX) == "tunnel:3"


# --- several ---


def test_the_master_of_the_highest_term_is_taken():
    network = (
        broker("a", status(MASTER, 1))  # it has not learned of its successor
        | broker("b", status(SLAVE, 9))
        | broker("c", status(MASTER, 9))
    )
    for seeds in (["a:1", "b:1", "c:1"], ["c:2", "b:2", "a:2"]):
        assert run(locate(seeds, None), network).address(COMMITLOG) == "c:1"


def test_without_a_master_the_one_that_was_taken_is_kept_as_long_as_it_answers():
    network = broker("a", status(SLAVE)) | broker("b", status(SLAVE))
    b = run(locate(["b:1"], None), network)
    assert run(locate(["a:1", "b:1"], b), network).address(COMMITLOG) == "b:1"
    restarting = {key: value for key, value in network.items() if key[0] != "b:1"}
    assert run(locate(["a:1", "b:1"], b), restarting).address(DISPATCHER) == "b:2"
    gone = broker("a", status(SLAVE))
    assert run(locate(["a:1", "b:1"], b), gone).address(DISPATCHER) == "a:2"


def test_a_log_that_answers_goes_before_one_that_does_not():
    network = broker("a") | broker("b", status(SLAVE))
    assert run(locate(["a:2", "b:2"], None), network).address(COMMITLOG) == "b:1"


def test_two_names_of_one_broker_are_one():
    told = {COMMITLOG: "10.0.0.1:1"}
    network = {
        ("x:1", "DescribeBroker"): description(**told),
        ("y:1", "DescribeBroker"): description(**told),
    }
    assert run(locate(["x:1", "y:1"], None), network).address(COMMITLOG) == "10.0.0.1:1"


def test_brokers_that_are_not_of_one_cluster_are_refused():
    network = broker("a", status(MASTER)) | broker("b", status(MASTER))
    with pytest.raises(InvalidRequestError, match="both masters of term 0"):
        run(locate(["a:1", "b:1"], None), network)
    network = broker("a", status(MASTER)) | broker("b", status(SLAVE), name="other")
    with pytest.raises(InvalidRequestError, match="different names"):
        run(locate(["a:1", "b:1"], None), network)


def test_every_address_is_named_when_none_answers():
    other = StrataError("what")
    other.fields["status"] = "UNIMPLEMENTED"
    with pytest.raises(UnavailableError, match=r"none of the 2.*at a:1.*at b:1"):
        run(locate(["a:1", "b:1"], None), {("a:1", "DescribeBroker"): other})
    with pytest.raises(InvalidRequestError, match="no service of StrataMQ"):
        run(locate(["a:1"], None), {("a:1", "DescribeBroker"): other})


# --- brokers of several names ---


def two_names() -> dict:
    a = broker("a", status(MASTER, 3), "x") | broker("b", status(MASTER, 5), "x")
    return a | broker("c", status(MASTER, 9), "y")


def test_a_survey_has_the_addresses_of_each_name_and_those_that_give_none():
    nameless = {("d:1", "DescribeBroker"): description(DISPATCHER, "", dispatcher="d:1")}
    found = run(survey(["c:1", "a:1", "b:2", "d:1", "e:1"]), two_names() | nameless)
    assert found.names == {"x": ("a:1", "b:2"), "y": ("c:1",)}
    assert set(found.silent) == {"d:1", "e:1"}
    assert "its log service is not running" in found.silent["d:1"].message
    with pytest.raises(UnavailableError):
        run(survey(["e:1", "f:1"]), {})


def test_among_several_names_one_is_chosen():
    seeds = ["a:1", "b:1", "c:1"]
    with pytest.raises(InvalidRequestError, match=r"\(x, y\).*broker=NAME.*--broker NAME"):
        run(locate(seeds, None), two_names())
    assert run(locate(seeds, None, "x"), two_names()).address(COMMITLOG) == "b:1"
    assert run(locate(seeds, None, "y"), two_names()).address(COMMITLOG) == "c:1"
    with pytest.raises(InvalidRequestError, match="the name z answers; there are x, y"):
        run(locate(seeds, None, "z"), two_names())
    gone = {key: value for key, value in two_names().items() if not key[0].startswith("c")}
    with pytest.raises(UnavailableError, match="the name y answers; there are x"):
        run(locate(seeds, None, "y"), gone)


def test_a_broker_that_gives_no_name_is_that_of_its_address_or_the_one_before():
    """Its log service has stopped; what is stored can be read."""
    nameless = {
        (address, "DescribeBroker"): description(DISPATCHER, "", dispatcher="c:2")
        for address in ("c:1", "c:2")
    }
    rest = {key: value for key, value in two_names().items() if not key[0].startswith("c")}
    network = rest | nameless
    seeds = ["a:1", "c:2"]
    assert run(locate(seeds, None, "y", own=["c:2"]), network).address(DISPATCHER) == "c:2"
    before = run(locate(["c:1"], None), two_names())
    assert run(locate(seeds, before, "y"), network).address(DISPATCHER) == "c:2"
    with pytest.raises(InvalidRequestError):
        run(locate(seeds, None, "y"), network)
    assert run(locate(seeds, None, "x"), network).address(COMMITLOG) == "a:1"


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

    assert run(locate(["a:1"], None, "n", ["a:1"], wider), network).asked == "a:1"
    assert asked == []
    assert run(locate(["b:1"], None, "n", ["b:1"], wider), network).asked == "a:1"
    assert run(locate(["gone:1"], None, "n", ["gone:1"], wider), network).asked == "a:1"
    assert asked == ["wider"] * 2


def test_a_slave_is_taken_while_no_address_leads_to_a_master():
    network = broker("b", status(SLAVE))
    assert run(locate(["b:1"], None, "n", ["b:1"], lambda: ["a:1"]), network).asked == "b:1"


def test_one_broker_at_two_addresses_is_no_second_master():
    network = broker("v4", of_generation(7)) | broker("v6", of_generation(7))
    assert run(locate(["v4:1", "v6:1"], None), network).asked == "v4:1"
    other = broker("v4", of_generation(7)) | broker("v6", of_generation(8))
    with pytest.raises(InvalidRequestError, match="both masters"):
        run(locate(["v4:1", "v6:1"], None), other)
