"""A client that calls repeatedly without an identity loses its connection, and no other does."""

import asyncio

from stratamq.service.connection_filter import LARGEST_ONE_IN
from stratamq.service.connection_filter import MOST_HOSTS as MOST_KEPT_OUT
from stratamq.service.strangers import (
    AGAIN_HELD,
    AGAIN_REFUSALS,
    FREE_REFUSALS,
    HOLD_S,
    LEFT_NS,
    MOST_CLOSED,
    MOST_HELD,
    MOST_HOSTS,
    MOST_REFUSALS,
    ONE_IN,
    REMEMBERED_NS,
    SOON_NS,
    TELL_NS,
    Strangers,
)
from stratamq.service.unheard import FREE_BYTES, IDLE_NS, LEAST_OVER_NS, LOOKS, MOST_IDLE, Sent

SECOND_NS = 1_000_000_000


class Time:
    now_ns = 7 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns


def test_a_connection_is_closed_at_so_many_refusals_in_a_second_and_once():
    time, closed = Time(), []
    strangers = Strangers(closed.extend, time)
    for _ in range(10):
        assert not any(strangers.refused("ipv4:10.0.0.1:5") for _ in range(MOST_REFUSALS - 1))
        time.now_ns += SECOND_NS
    assert closed == []
    for _ in range(2 * MOST_REFUSALS):
        strangers.refused("ipv4:10.0.0.1:5")
        strangers.refused("ipv4:10.0.0.2:5") if len(closed) == 0 else None
    assert closed == ["ipv4:10.0.0.1:5"]


async def call_and_go(strangers: Strangers, peer: str) -> None:
    """A call that is refused, and reset at once."""
    strangers.refused(peer)
    held = asyncio.ensure_future(strangers.hold(peer))
    await asyncio.sleep(0)
    held.cancel()
    await asyncio.wait([held])


def test_the_next_connections_of_its_host_are_closed_sooner_if_they_do_not_wait():
    time, closed = Time(), []
    strangers = Strangers(closed.extend, time)

    async def calls(port: int, count: int) -> None:
        for _ in range(count):
            await call_and_go(strangers, f"ipv6:%5B2001:db8::1%5D:{port}")
            await call_and_go(strangers, f"ipv6:%5B2001:db8::2%5D:{port}")

    for _ in range(MOST_REFUSALS):
        strangers.refused("ipv6:%5B2001:db8::1%5D:5")
    asyncio.run(calls(6, AGAIN_REFUSALS))
    assert closed == ["ipv6:%5B2001:db8::1%5D:5", "ipv6:%5B2001:db8::1%5D:6"]
    time.now_ns += REMEMBERED_NS
    asyncio.run(calls(7, AGAIN_REFUSALS))
    assert len(closed) == 2


def test_a_connection_that_was_closed_is_known_for_a_while_and_is_not_closed_again():
    time, closed = Time(), []
    strangers = Strangers(closed.extend, time)
    for _ in range(3 * MOST_REFUSALS):
        strangers.refused("ipv4:10.0.0.1:5")
    assert closed == ["ipv4:10.0.0.1:5"]
    assert strangers.is_closed("ipv4:10.0.0.1:5")
    assert not strangers.is_closed("ipv4:10.0.0.1:6")
    # The port is another connection's.
    time.now_ns += LEFT_NS
    assert not strangers.is_closed("ipv4:10.0.0.1:5")
    assert sum(strangers.refused("ipv4:10.0.0.1:5") for _ in range(MOST_REFUSALS)) == 1


class Sleeps:
    """Held calls, until they are let go."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.over = asyncio.Event()

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await self.over.wait()


def test_refusals_of_a_host_beyond_some_in_a_second_are_held_for_a_while_and_no_others():
    async def scenario() -> None:
        time, sleeps = Time(), Sleeps()
        strangers = Strangers(lambda peers: None, time, sleeps)

        async def call(host: str) -> bool:
            """Whether its answer is held."""
            before = len(sleeps.seconds)
            peer = f"ipv4:{host}:5"
            strangers.refused(peer)
            tasks.append(asyncio.ensure_future(strangers.hold(peer)))
            await asyncio.sleep(0)
            return len(sleeps.seconds) > before

        tasks: list[asyncio.Task[None]] = []
        assert [await call("10.0.0.1") for _ in range(FREE_REFUSALS)] == [False] * FREE_REFUSALS
        assert await call("10.0.0.1")
        assert not await call("10.0.0.2")
        time.now_ns += REMEMBERED_NS - 1
        assert await call("10.0.0.1")
        time.now_ns += REMEMBERED_NS
        await strangers.hold("ipv4:10.0.0.1:5")
        assert not await call("10.0.0.1"), "a second of its own, and no refusal lately"
        assert sleeps.seconds == [HOLD_S, HOLD_S]
        sleeps.over.set()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_a_connection_with_many_calls_that_wait_is_closed_if_its_host_lost_another_one_lately():
    async def scenario() -> None:
        time, sleeps, closed = Time(), Sleeps(), []
        strangers = Strangers(closed.extend, time, sleeps)
        tasks: list[asyncio.Task[None]] = []

        async def calls(peer: str, count: int) -> list[bool]:
            """Which of them close the connection; all are held."""
            found = []
            for _ in range(count):
                found.append(strangers.refused(peer))
                tasks.append(asyncio.ensure_future(strangers.hold(peer)))
                await asyncio.sleep(0)
            return found

        for _ in range(MOST_REFUSALS):
            strangers.refused("ipv4:10.0.0.1:5")
            strangers.refused("ipv4:10.0.0.2:5") if not closed else None
        assert closed == ["ipv4:10.0.0.1:5"]
        assert await calls("ipv4:10.0.0.1:6", AGAIN_HELD) == [False] * AGAIN_HELD
        assert await calls("ipv4:10.0.0.1:7", AGAIN_HELD + 1) == [*[False] * AGAIN_HELD, True]
        assert await calls("ipv4:10.0.0.2:6", 2 * AGAIN_HELD) == [False] * 2 * AGAIN_HELD
        assert closed == ["ipv4:10.0.0.1:5", "ipv4:10.0.0.1:7"]
        sleeps.over.set()
        await asyncio.gather(*tasks)
        sleeps.over.clear()
        # Those that were answered count no more.
        time.now_ns += SECOND_NS
        assert await calls("ipv4:10.0.0.1:6", AGAIN_HELD) == [False] * AGAIN_HELD
        sleeps.over.set()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_so_many_calls_of_a_host_are_held_and_those_that_ended_make_room():
    async def scenario() -> None:
        sleeps, closed = Sleeps(), []
        strangers = Strangers(closed.extend, Time(), sleeps)
        peers = [f"ipv4:10.0.0.1:{port}" for port in range(MOST_HELD + FREE_REFUSALS)]
        tasks = []
        for peer in peers:
            strangers.refused(peer)
            tasks.append(asyncio.ensure_future(strangers.hold(peer)))
            await asyncio.sleep(0)
        assert len(sleeps.seconds) == MOST_HELD
        await strangers.hold(peers[0])
        assert closed == []
        sleeps.over.set()
        await asyncio.gather(*tasks)
        await strangers.hold(peers[0])
        assert len(sleeps.seconds) == MOST_HELD + 1

    asyncio.run(scenario())


def test_of_the_hosts_the_ones_that_were_refused_last_are_remembered():
    async def scenario() -> None:
        sleeps = Sleeps()
        sleeps.over.set()
        strangers = Strangers(lambda peers: None, Time(), sleeps)
        for host in ("first", "second"):
            for _ in range(FREE_REFUSALS + 1):
                strangers.refused(f"{host}:1")
        for number in range(MOST_HOSTS - 1):
            strangers.refused(f"other-{number}:1")
            strangers.refused("second:1")
        for host in ("first", "second"):
            await strangers.hold(f"{host}:1")
        assert len(sleeps.seconds) == 1

    asyncio.run(scenario())


KEEP_OUT_NS = 20 * SECOND_NS


class Attacking:
    """Connections of hosts that are closed, one after another."""

    def __init__(self, keep_out_ns: int = KEEP_OUT_NS) -> None:
        self.time = Time()
        self.kept_out: list[dict[str, int]] = []
        self.ports = iter(range(1, 65_536))
        self.strangers = Strangers(
            lambda peers: None,
            self.time,
            keep_out=lambda hosts: self.kept_out.append(dict(hosts)),
            keep_out_ns=keep_out_ns,
        )

    def close(self, host: str, after_ns: int = SOON_NS) -> None:
        self.time.now_ns += after_ns
        peer = f"{host}:{next(self.ports)}"
        assert any(self.strangers.refused(peer) for _ in range(MOST_REFUSALS))


def test_a_host_whose_connections_are_closed_again_and_again_is_kept_out_for_a_while():
    attacking = Attacking()
    for _ in range(MOST_CLOSED - 1):
        attacking.close("ipv4:10.0.0.1")
        attacking.close("ipv4:10.0.0.2", REMEMBERED_NS // 2)
    assert attacking.kept_out == []
    attacking.close("ipv4:10.0.0.1")
    assert attacking.kept_out == [{"ipv4:10.0.0.1": ONE_IN}]
    attacking.close("ipv4:10.0.0.1")
    attacking.time.now_ns += KEEP_OUT_NS - 1
    attacking.strangers.let_in()
    assert attacking.kept_out[-1] == {"ipv4:10.0.0.1": ONE_IN}
    attacking.time.now_ns += 1
    attacking.strangers.let_in()
    assert attacking.kept_out[-1] == {}
    updates = len(attacking.kept_out)
    attacking.strangers.let_in()
    assert len(attacking.kept_out) == updates, "nothing has changed"


def test_connections_that_are_closed_now_and_then_keep_no_host_out():
    attacking = Attacking()
    for _ in range(3 * MOST_CLOSED):
        attacking.close("ipv4:10.0.0.1", REMEMBERED_NS)
    assert attacking.kept_out == []


def test_a_host_that_connects_too_often_gets_in_less_and_the_last_one_is_listed_last():
    attacking = Attacking()
    for _ in range(MOST_CLOSED):
        attacking.close("ipv4:10.0.0.1")
        attacking.close("ipv4:10.0.0.2")
    attacking.close("ipv4:10.0.0.1", SOON_NS - 1)
    attacking.close("ipv4:10.0.0.1", SOON_NS - 1)
    assert list(attacking.kept_out[-1].items()) == [
        ("ipv4:10.0.0.2", ONE_IN),
        ("ipv4:10.0.0.1", 2 * ONE_IN),
    ]
    for _ in range(20):
        attacking.close("ipv4:10.0.0.1", SOON_NS - 1)
    assert attacking.kept_out[-1]["ipv4:10.0.0.1"] == LARGEST_ONE_IN
    attacking.close("ipv4:10.0.0.1")
    assert attacking.kept_out[-1]["ipv4:10.0.0.1"] == ONE_IN


def test_a_host_with_an_authenticated_client_gets_in_no_less_however_often_others_of_it_do():
    """One of thousands would keep its clients out for as long as the attack lasts."""
    attacking = Attacking()
    attacking.strangers.unheard.known("ipv4:10.0.0.1:70000")
    for _ in range(3 * MOST_CLOSED):
        attacking.close("ipv4:10.0.0.1", SOON_NS - 1)
        attacking.close("ipv4:10.0.0.10", 0)
    assert attacking.kept_out[-1]["ipv4:10.0.0.1"] == ONE_IN
    attacking.time.now_ns += TELL_NS
    attacking.strangers.let_in()
    assert attacking.kept_out[-1]["ipv4:10.0.0.10"] > ONE_IN


def test_of_very_many_hosts_the_last_are_kept_out_and_the_kernel_is_updated_now_and_then():
    """The kernel takes as long for them as the event loop may be held."""
    attacking = Attacking()
    for number in range(3 * MOST_KEPT_OUT):
        for _ in range(MOST_CLOSED):
            attacking.close(f"ipv4:10.1.{number >> 8}.{number & 0xFF}", after_ns=0)
    assert len(attacking.kept_out) == 1
    attacking.time.now_ns += TELL_NS
    attacking.strangers.let_in()
    attacking.strangers.let_in()
    assert len(attacking.kept_out) == 2
    assert len(attacking.kept_out[-1]) == MOST_KEPT_OUT
    assert "ipv4:10.1.2.255" in attacking.kept_out[-1]
    attacking.time.now_ns += KEEP_OUT_NS
    attacking.strangers.let_in()
    assert attacking.kept_out[-1] == {}


def test_where_it_is_not_configured_no_host_is_kept_out():
    attacking = Attacking(keep_out_ns=0)
    for _ in range(3 * MOST_CLOSED):
        attacking.close("ipv4:10.0.0.1")
    assert attacking.kept_out == []


def test_connections_that_send_and_call_nothing_are_closed_and_keep_their_host_out():
    time, closed, kept_out = Time(), [], []
    strangers = Strangers(
        closed.extend, time, keep_out=lambda hosts: kept_out.append(dict(hosts)), keep_out_ns=1
    )

    def look(**sent: int) -> list[str]:
        strangers.unheard.begin()
        return strangers.look(
            {f"ipv4:10.0.0.1:{port[1:]}": Sent(one, 0) for port, one in sent.items()}
        )

    for _ in range(LOOKS - 1):
        assert look(_1=2 * FREE_BYTES, _2=FREE_BYTES // 2, _3=2 * FREE_BYTES) == []
        time.now_ns += LEAST_OVER_NS
    assert set(look(_1=2 * FREE_BYTES, _2=FREE_BYTES // 2)) == {
        "ipv4:10.0.0.1:1",
        "ipv4:10.0.0.1:3",
    }
    assert closed == ["ipv4:10.0.0.1:1"], "the third is gone"
    assert kept_out == []
    assert look(_4=2 * FREE_BYTES) == []
    assert look() == ["ipv4:10.0.0.1:4"]
    assert kept_out == [{"ipv4:10.0.0.1": ONE_IN}]


def test_all_that_are_one_too_many_at_a_look_are_closed_at_once():
    """Each would be looked for by itself."""
    time, closed = Time(), []
    strangers = Strangers(closed.append, time)
    sent = {f"ipv4:10.0.0.1:{port}": Sent(2 * FREE_BYTES, 0) for port in range(1_000)}
    for _ in range(LOOKS):
        strangers.unheard.begin()
        strangers.look(sent)
        time.now_ns += LEAST_OVER_NS
    assert [set(peers) for peers in closed if peers] == [set(sent)]


def test_a_host_of_many_connections_that_call_nothing_is_kept_out_and_keeps_those_it_has():
    time, closed, kept_out = Time(), [], []
    strangers = Strangers(
        closed.extend, time, keep_out=lambda hosts: kept_out.append(dict(hosts)), keep_out_ns=1
    )
    crowd = {f"ipv4:10.0.0.1:{port}": Sent(0, 0) for port in range(MOST_IDLE + 1)}
    for _ in range(2):
        strangers.unheard.begin()
        assert strangers.look(crowd) == []
        time.now_ns += IDLE_NS
    assert kept_out == [{"ipv4:10.0.0.1": ONE_IN}]
    assert closed == []
