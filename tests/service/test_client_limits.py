"""What one client may use: refused beyond it, in turn within it, and no other client is delayed."""

import asyncio
import resource
import subprocess
import sys

import pytest

from stratamq.errors import BusyError, UnavailableError
from stratamq.service.caller import LOCAL, Caller
from stratamq.service.client_limits import (
    MAX_CLIENTS,
    RECEIVE_S,
    RECEIVED_AT_ONCE,
    ClientLimits,
    LimitsConfig,
    Rate,
)

SECOND_NS = 1_000_000_000


class Time:
    now_ns = 50 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def time() -> Time:
    return Time()


def limits(time: Time, **values: int) -> ClientLimits:
    return ClientLimits(LimitsConfig(**values), time)


def test_a_rate_lets_through_what_a_second_saved_up_and_then_its_share(time):
    rate = Rate(100)
    for _ in range(100):
        assert rate.debt_s(time()) == 0
        rate.spend(1, time())
    rate.spend(50, time())
    assert rate.debt_s(time()) == pytest.approx(0.5)
    time.now_ns += SECOND_NS // 2
    assert rate.debt_s(time()) == 0


@pytest.mark.parametrize(("name", "stream"), [("open_calls", False), ("streams", True)])
def test_what_is_open_at_a_time_is_bounded_for_each_client(time, name, stream):
    found = limits(time, **{name: 2})
    one = found.of("alice")
    one.begin(stream=stream)
    one.begin(stream=stream)
    with pytest.raises(BusyError, match=f"limits.{name} is 2"):
        one.begin(stream=stream)
    found.of("bob").begin(stream=stream)
    one.end(stream=stream)
    one.begin(stream=stream)


def test_a_call_above_the_limit_is_answered_with_the_delay_until_it_is_taken(time):
    one = limits(time, calls_per_second=10).of("alice")
    for _ in range(11):
        one.begin(stream=False)
    with pytest.raises(BusyError) as refused:
        one.begin(stream=False)
    assert 90 <= refused.value.retry_after_ms <= 101
    time.now_ns += refused.value.retry_after_ms * 1_000_000
    one.begin(stream=False)


def test_bytes_are_paid_for_by_calls_and_slow_streams_down(time):
    one = limits(time, bytes_per_second=1_000).of("alice")
    assert one.spend_bytes(1_000) == 0
    assert one.spend_bytes(2_000) == pytest.approx(2)
    with pytest.raises(BusyError, match="bytes_per_second"):
        one.begin(stream=False)
    one.begin(stream=True)
    time.now_ns += 2 * SECOND_NS
    one.begin(stream=False)


def test_a_client_that_is_not_counted_has_any_number_open(time):
    one = limits(time, open_calls=2, streams=2).of("ipv4:127.0.0.1", counted=False)
    for _ in range(10):
        one.begin(stream=True)
    assert one.calls == 10


def test_answers_that_a_client_does_not_take_are_bounded(time):
    found = limits(time, bytes_in_flight=8 << 20)
    one = found.of("alice")
    one.hold(9 << 20)  # a single one is always given
    one.let_go(9 << 20)
    one.hold(8 << 20)
    with pytest.raises(BusyError, match="bytes_in_flight"):
        one.hold(1)
    with pytest.raises(BusyError, match="bytes_in_flight"):
        one.require_room()
    one.hold(1, refusable=False)  # of what was done: who does not hear of it does it again
    one.let_go(1)
    found.of("bob").hold(1)
    one.let_go(8 << 20)
    one.require_room()
    one.hold(1)


def test_a_client_spares_half_of_what_may_be_in_flight(time):
    one = limits(time, bytes_in_flight=8 << 20).of("alice")
    one.hold(3 << 20)
    assert one.spares(1 << 20) and not one.spares((1 << 20) + 1)


async def test_only_so_many_requests_are_received_at_once_and_the_others_in_their_order(time):
    one = limits(time).of("alice")
    read: list[int] = []
    arrived = asyncio.Event()

    async def request(number: int) -> None:
        read.append(number)
        await arrived.wait()

    calls = [
        asyncio.create_task(one.receive(lambda number=number: request(number)))
        for number in range(3 * RECEIVED_AT_ONCE)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert read == list(range(RECEIVED_AT_ONCE))
    calls[RECEIVED_AT_ONCE].cancel()  # it waits for its turn, and goes away
    arrived.set()
    await asyncio.gather(*calls, return_exceptions=True)
    waited = range(RECEIVED_AT_ONCE + 1, 3 * RECEIVED_AT_ONCE)
    assert read == [*range(RECEIVED_AT_ONCE), *waited]
    assert one._receiving == 0


def test_a_request_that_does_not_arrive_is_refused_and_frees_its_turn(time):
    found = limits(time)
    one = found.of("alice")

    async def stalled() -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        calls = [asyncio.create_task(one.receive(stalled)) for _ in range(RECEIVED_AT_ONCE)]
        await asyncio.sleep(0)
        time.now_ns += int(RECEIVE_S * SECOND_NS)
        waiting = asyncio.create_task(one.receive(lambda: asyncio.sleep(0, b"there")))
        await asyncio.sleep(0)
        found._look()
        assert not any(call.done() for call in calls)
        time.now_ns += 1
        found._look()
        for call in calls:
            with pytest.raises(UnavailableError, match="not there within"):
                await asyncio.wait_for(call, 10)
        assert await waiting == b"there"

    asyncio.run(run())


def test_a_caller_who_goes_away_is_no_late_request(time):
    one = limits(time).of("alice")

    async def run() -> None:
        call = asyncio.create_task(one.receive(asyncio.Event().wait))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(run())
    assert one._receiving == 0


def test_clients_that_use_nothing_are_forgotten(time):
    found = limits(time)
    busy = found.of("busy")
    busy.begin(stream=False)
    for number in range(MAX_CLIENTS + 10):
        found.of(f"host {number}")
    assert len(found._clients) <= MAX_CLIENTS
    assert found.of("busy") is busy


@pytest.mark.parametrize(
    ("caller", "authenticates", "client"),
    [
        (Caller("10.0.0.1", 5000), False, "10.0.0.1"),
        (Caller("::1", 5000), False, "::1"),
        (Caller("10.0.0.1", 5000, name="alice"), True, "user alice"),
        (Caller(), False, None),
        (Caller(name=LOCAL, trusted=True), True, None),
        (Caller("10.0.0.1", 5000, name="stratamq-broker", trusted=True), True, None),
    ],
)
def test_a_client_is_the_user_or_the_host_where_users_are_not_known(
    time, caller, authenticates, client
):
    found = limits(time)
    known = found.client(caller, authenticates=authenticates)
    assert known is (None if client is None else found.of(client))


@pytest.mark.parametrize(
    ("host", "authenticates", "bounded"),
    [("127.0.0.1", False, False), ("127.0.0.1", True, True), ("10.0.0.1", False, True)],
)
def test_hosts_but_this_one_have_a_bound_of_open_calls(time, host, authenticates, bounded):
    one = limits(time, open_calls=1).client(Caller(host, 5), authenticates=authenticates)
    one.begin(stream=False)
    if bounded:
        with pytest.raises(BusyError):
            one.begin(stream=False)
    else:
        one.begin(stream=False)


def test_a_service_takes_the_descriptors_it_may_have_and_leaves_most_to_its_files():
    program = (
        "import resource\n"
        "from stratamq.service.client_limits import LimitsConfig\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2000))\n"
        "options = dict(LimitsConfig().channel_options())\n"
        "assert options['grpc.max_allowed_incoming_connections'] == 500, options\n"
        "assert resource.getrlimit(resource.RLIMIT_NOFILE) == (2000, 2000)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 2_000
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
