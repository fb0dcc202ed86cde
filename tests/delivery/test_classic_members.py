"""Members of classic groups, shared among gateways: each is told of the others' members, once and
in their latest state, and of nobody who has gone with a gateway."""

import pytest
from stratamq_delivery import classic_members
from stratamq_delivery.classic_members import BATCH, GONE_AT_ONCE, ClassicMembers, MemberKey

from stratamq.errors import BusyError, InvalidRequestError
from stratamq.service import classic_calls

ONE, TWO = MemberKey(1, "g", "one"), MemberKey(2, "g", "two")


@pytest.fixture
def members():
    return ClassicMembers()


def told(stream):
    found = {}
    while some := stream.next():
        assert len(some) <= BATCH
        found |= some
    return found


def test_a_gateway_is_told_who_is_there_and_what_changes_at_others(members):
    first = members.open()
    members.say(first, ONE, b"a")
    second = members.open()
    assert told(second) == {ONE: b"a"} and told(first) == {}
    members.say(second, TWO, b"b")
    members.say(first, ONE, b"c")
    assert (told(first), told(second)) == ({TWO: b"b"}, {ONE: b"c"})
    members.say(first, ONE, b"")
    assert told(second) == {ONE: b""}
    assert dict(members.of_group("g")) == {"two": b"b"} and len(members) == 1


def test_what_was_said_on_a_stream_is_gone_with_it(members):
    first, second = members.open(), members.open()
    members.say(first, ONE, b"a")
    members.say(second, TWO, b"b")
    told(second)
    many = [MemberKey(1, "g", f"c{number}") for number in range(2 * GONE_AT_ONCE)]
    for key in many:
        members.say(first, key, b"c")
    assert members.close(first), "not all at once"
    while members.close(first):
        assert len(second.untold) >= GONE_AT_ONCE
    assert told(second) == {ONE: b"", **dict.fromkeys(many, b"")}
    assert told(members.open()) == {TWO: b"b"}


def test_a_gateway_that_comes_again_before_its_old_stream_has_ended_keeps_its_members(members):
    old, other = members.open(), members.open()
    members.say(old, ONE, b"a")
    again = members.open()
    members.say(again, ONE, b"a")
    members.say(old, ONE, b"")
    members.close(old)
    assert told(other) == {ONE: b"a"} and len(members) == 1


def test_a_gateway_that_reads_slowly_is_told_the_latest_alone(members):
    first, slow = members.open(), members.open()
    for number in range(1_000):
        members.say(first, ONE, b"%d" % number)
    assert told(slow) == {ONE: b"999"}


def test_members_are_bounded(members, monkeypatch):
    monkeypatch.setattr(classic_members, "MAX_MEMBERS", 2)
    monkeypatch.setattr(classic_members, "MAX_BYTES", 10)
    stream = members.open()
    members.say(stream, ONE, b"12345")
    members.say(stream, ONE, b"1234567890")
    with pytest.raises(BusyError):
        members.say(stream, TWO, b"1")
    members.say(stream, ONE, b"1")
    members.say(stream, TWO, b"1")
    with pytest.raises(BusyError):
        members.say(stream, MemberKey(1, "g", "three"), b"1")
    members.say(stream, TWO, b"")
    members.say(stream, MemberKey(1, "g", "three"), b"1")
    for wrong in (MemberKey(1, "", "a"), MemberKey(1, "g", ""), MemberKey(1, "é" * 128, "a")):
        with pytest.raises(InvalidRequestError):
            members.say(stream, wrong, b"1")
    with pytest.raises(InvalidRequestError):
        members.say(stream, ONE, bytes(classic_calls.MAX_MEMBER_BYTES + 1))
    members.close(stream)
    assert len(members) == 0
