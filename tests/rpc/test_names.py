"""Host names of several addresses: resolved beside, bounded, and again after a while."""

import threading
from concurrent import futures

import pytest

from stratamq.files.simulated import SimulatedClock
from stratamq.rpc.names import MAX_ADDRESSES, RESOLVE_AGAIN_NS, Names, is_name

NAME = "cluster.example:10911"


def resolved(names: Names, *addresses: str) -> list[str]:
    done = futures.wait(names.begin(addresses), 60)
    assert not done.not_done
    return names.expand(addresses)


def answering(*answers) -> tuple[Names, SimulatedClock]:
    """One answer after the other; an OSError is raised."""
    left = list(answers)

    def resolve(host: str, port: int) -> list[str]:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    clock = SimulatedClock()
    return Names(resolve, clock), clock


def test_a_name_of_several_addresses_is_all_of_them_and_one_of_a_single_address_stays_a_name():
    several, _ = answering(["10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.1"])
    assert resolved(several, NAME, "10.0.0.1:10911", "9.9.9.9:1") == [
        "10.0.0.1:10911", "10.0.0.2:10911", "[fd00::1]:10911", "9.9.9.9:1",
    ]  # fmt: skip
    single, _ = answering(["10.0.0.1"])
    assert resolved(single, NAME) == [NAME]


def test_certificates_of_a_names_addresses_are_checked_against_the_name():
    names, _ = answering(["10.0.0.1", "fd00::1"])
    resolved(names, NAME)
    assert names.certified_as("10.0.0.1:10912") == "cluster.example"
    assert names.certified_as("[fd00::1]:1") == "cluster.example"
    assert names.certified_as("10.0.0.9:1") == names.certified_as("unix:/run/x") == ""


@pytest.mark.parametrize(
    "garbage",
    [[], OSError("no such host"), ["0.0.0.0", "::", "224.0.0.1", "nonsense", ""]],
    ids=["nothing", "error", "no addresses"],
)
def test_a_name_that_resolves_to_nothing_usable_keeps_what_it_was(garbage):
    names, clock = answering(garbage, ["10.0.0.1", "10.0.0.2"], garbage)
    assert resolved(names, NAME) == [NAME], "nothing is known yet"
    clock.advance_ms(RESOLVE_AGAIN_NS // 1_000_000)
    both = ["10.0.0.1:10911", "10.0.0.2:10911"]
    assert resolved(names, NAME) == both
    clock.advance_ms(RESOLVE_AGAIN_NS // 1_000_000)
    assert resolved(names, NAME) == both


def test_a_name_is_resolved_again_after_a_while_and_not_before():
    names, clock = answering(["10.0.0.1", "10.0.0.2"], ["10.0.0.3", "10.0.0.4"])
    resolved(names, NAME)
    assert names.begin([NAME]) == []
    clock.advance_ms(RESOLVE_AGAIN_NS // 1_000_000)
    assert resolved(names, NAME) == ["10.0.0.3:10911", "10.0.0.4:10911"]


def test_a_resolver_that_does_not_return_has_one_thread_and_holds_up_no_other_name():
    let_go = threading.Event()
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        if host == "stuck":
            let_go.wait(60)
        return ["10.0.0.1", "10.0.0.2"]

    clock = SimulatedClock()
    names = Names(resolve, clock)
    (first,) = names.begin(["stuck:1"])
    clock.advance_ms(60_000)
    assert names.begin(["stuck:1"]) == [first]
    assert resolved(names, "well:1") == ["10.0.0.1:1", "10.0.0.2:1"]
    assert names.expand(["stuck:1"]) == ["stuck:1"]
    let_go.set()
    first.result(60)
    assert asked == ["stuck", "well"]
    assert len(names.expand(["stuck:1"])) == 2


def test_the_addresses_of_a_name_are_bounded():
    names, _ = answering([f"10.{number >> 8}.{number & 255}.1" for number in range(5_000)])
    assert len(resolved(names, NAME)) == MAX_ADDRESSES


@pytest.mark.parametrize(
    ("address", "resolvable"),
    [("a.example:1", True), ("a:1", True), ("10.0.0.1:1", False), ("[::1]:1", False),
     ("localhost:1", False), ("unix:/run/x", False)],
)  # fmt: skip
def test_addresses_and_this_machine_are_no_names(address, resolvable):
    assert is_name(address) is resolvable
