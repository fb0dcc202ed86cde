"""What the members of shards have answered, ordered by shard: roles, lag, who is missing."""

from dataclasses import replace

from stratamq.client import Drain, LogState, MemberLook, ReplicaState, Role, shards_of
from stratamq.formats.members import Member, Members

MEMBERS = Members(2, 1, tuple(Member(n, name, f"{name}:10912") for n, name in enumerate("xyz")))
MASTER = LogState(
    role=Role.SYNC_MASTER,
    term=3,
    members=MEMBERS,
    member="x",
    appended_offset=1_000,
    broker_name="a",
    identity=1,
    writable=True,
    replicas=(ReplicaState("y:1", 940, connected=True, lag_bytes=60, lag_ms=7, member="y"),),
)


def look(log: LogState, drain: Drain = Drain.OPEN) -> MemberLook:
    return MemberLook(f"{log.member}:10911", log, drain)


def slave(member: str, end: int, identity: int, term: int = 3) -> MemberLook:
    return look(
        replace(
            MASTER,
            role=Role.SLAVE,
            member=member,
            appended_offset=end,
            identity=identity,
            term=term,
            replicas=(),
        )
    )


def test_a_slaves_lag_is_what_the_master_counts_or_the_difference_of_the_ends():
    (shard,), silent = shards_of([slave("z", 900, 3), look(MASTER), slave("y", 950, 2)])
    found = {one.name: (one.lag_bytes, one.lag_ms) for one in shard.members}
    assert found == {"x": (None, None), "y": (60, 7), "z": (100, None)}
    assert (shard.address, shard.writable, silent) == ("x:10911", True, [])


def test_a_member_that_no_address_led_to_is_there_and_a_removed_one_is_not():
    y, z = MEMBERS.members[1:]
    members = Members(2, 1, (MEMBERS.members[0], y, replace(z, removed=True)))
    (shard,), _ = shards_of([look(replace(MASTER, members=members))])
    assert [(one.name, one.look is None) for one in shard.members] == [("x", False), ("y", True)]


def test_the_master_is_that_of_the_latest_term():
    old = replace(MASTER, member="y", term=2, identity=2)
    (shard,), _ = shards_of([look(old), look(MASTER)])
    assert shard.master is not None
    assert shard.master.log is MASTER


def test_a_broker_at_two_addresses_is_one_and_one_without_answer_has_no_shard():
    away = MemberLook("q:10911", None, None, "no answer")
    (shard,), silent = shards_of([look(MASTER), away, replace(look(MASTER), address="[::1]:1")])
    assert [one.look and one.look.address for one in shard.members][:1] == ["x:10911"]
    assert len(shard.members) == len(MEMBERS.members)
    assert silent == [away]


def test_a_shard_without_a_master_has_its_members_and_takes_nothing():
    (a, b), _ = shards_of([slave("y", 900, 2), look(replace(MASTER, broker_name="b"))])
    assert (a.name, a.master, a.writable, a.drain) == ("a", None, False, None)
    assert a.address == "y:10911"
    assert (b.name, b.drain) == ("b", Drain.OPEN)
