"""RocketMQ 5's gRPC protocol without a broker: what a client may keep of the gateway, and what is
lost when one of them is gone."""

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from stratamq_gateway.messaging import receiving
from stratamq_gateway.messaging import sessions as of_sessions
from stratamq_gateway.messaging.messages import FIRST_MS, LAST_MS, to_deliver
from stratamq_gateway.messaging.routing import HeartbeatCall
from stratamq_gateway.messaging.sessions import IDLE_S, CallersClients, ClientSession, Sessions
from stratamq_gateway.messaging.telemetry import telemetry

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.api.v1.delivery_pb2 import RenewLeaseRequest
from stratamq.errors import BusyError
from stratamq.files.clock import SystemClock
from stratamq.files.simulated_time import SimulatedClock
from stratamq.formats.hosts import Host
from stratamq.formats.properties import TIMER_DELIVER_MS
from stratamq.service.caller import Caller
from stratamq.service.front import Front


def session_of(client: AsyncMock, name: str = "c") -> ClientSession:
    return ClientSession(name, Caller(), CallersClients(SimpleNamespace(client=lambda _: client)))


def test_a_push_consumer_keeps_what_a_gateway_that_is_gone_has_given_it():
    """It says that it lives, and asks for nothing as long as it has enough to do."""
    client = AsyncMock()
    session = session_of(client, "worker")
    heartbeat = pb.HeartbeatRequest(client_type=pb.PUSH_CONSUMER, group=pb.Resource(name="shop"))
    call = HeartbeatCall()
    answer = asyncio.run(call.answer(session, heartbeat, call.asked(heartbeat)))
    assert answer.status.code == pb.OK
    ((renewal,), _) = client.run.await_args
    assert (type(renewal.request), renewal.request.group) == (RenewLeaseRequest, "shop")


def test_a_client_without_an_open_call_makes_room_for_another(monkeypatch):
    """So one user that calls itself by many names locks out nobody."""
    monkeypatch.setattr("stratamq_gateway.messaging.sessions.MAX_SESSIONS", 2)

    async def play() -> None:
        sessions = Sessions(SimpleNamespace(client=lambda _: AsyncMock()), SystemClock())
        caller = Caller("10.0.0.1", 1)
        with sessions.of("busy", caller):
            first = sessions.of("first", caller)
            assert sessions.of("first", caller._replace(port=2)) is first
            for number in range(5):
                sessions.of(f"other-{number}", caller)
            assert len(sessions) == 2
            with sessions.of("busier", caller), pytest.raises(BusyError):
                sessions.of("one too many", caller)
        await sessions.close()

    asyncio.run(play())


def test_programs_of_one_user_at_one_host_share_a_client_until_the_last_is_gone():
    """What they send at one moment leaves in one batch."""
    made: list[tuple[Caller, AsyncMock]] = []

    def client(caller: Caller) -> AsyncMock:
        made.append((caller, AsyncMock()))
        return made[-1][1]

    async def play() -> None:
        sessions = Sessions(SimpleNamespace(client=client), SystemClock())
        shop = Caller("10.0.0.1", 1, name="shop")
        first, second = sessions.of("first", shop), sessions.of("second", shop._replace(port=2))
        others = [shop._replace(name="till"), shop._replace(host="10.0.0.2")]
        found = {id(sessions.of("third", one).client) for one in others}
        assert first.client is second.client and len(found | {id(first.client)}) == 3
        assert [caller for caller, _ in made] == [one._replace(port=0) for one in (shop, *others)]
        sessions.forget(first)
        await asyncio.sleep(0)
        second.client.close.assert_not_awaited()
        await sessions.close()
        for _, one in made:
            one.close.assert_awaited_once()

    asyncio.run(play())


def test_the_stream_of_a_client_that_says_nothing_more_ends():
    """Clients say every 10 s that they live. Java's that was closed while the broker was away opens
    a stream, and waits for its end."""

    async def play() -> None:
        clock = SimulatedClock()
        sessions = Sessions(SimpleNamespace(client=lambda _: AsyncMock()), clock)
        session = sessions.of("silent", Caller())
        with session:
            told = session.begin_telling()
            clock.advance_ms(IDLE_S * 1_000)
            sessions.expire()
            assert session.is_told
            clock.advance_ms(1)
            sessions.expire()
            assert (session.is_told, await told.get(), len(sessions)) == (False, None, 1)
        sessions.expire()
        assert len(sessions) == 0
        await sessions.close()

    asyncio.run(play())


def test_silent_clients_are_forgotten_however_many_a_step_looks_at(monkeypatch):
    monkeypatch.setattr(of_sessions, "LOOKED_AT_ONCE", 2)

    async def play() -> None:
        clock = SimulatedClock()
        sessions = Sessions(SimpleNamespace(client=lambda _: AsyncMock()), clock)
        for number in range(5):
            sessions.of(f"silent-{number}", Caller())
        clock.advance_ms(IDLE_S * 1_000 + 1)
        heard_of = sessions.of("silent-3", Caller())
        sizes = []
        for _ in range(3):
            sessions.expire()
            sizes.append(len(sessions))
        assert sizes == [3, 1, 1]
        assert sessions.of("silent-3", Caller()) is heard_of
        await sessions.close()

    asyncio.run(play())


def test_a_client_that_said_goodbye_has_left_until_it_comes_again_or_is_long_gone():
    async def play() -> None:
        clock = SimulatedClock()
        sessions = Sessions(SimpleNamespace(client=lambda _: AsyncMock()), clock)
        for name in ("first", "second"):
            sessions.forget(sessions.of(name, Caller()))
            clock.advance_ms(1)
        assert sessions.has_left("first", Caller()) and sessions.has_left("second", Caller())
        clock.advance_ms(IDLE_S * 1_000 - 2)
        sessions.expire()
        assert not sessions.has_left("first", Caller()) and sessions.has_left("second", Caller())
        sessions.of("second", Caller())
        assert not sessions.has_left("second", Caller())
        await sessions.close()

    asyncio.run(play())


def test_an_odd_time_of_another_protocol_stops_no_other_message():
    head = SimpleNamespace(
        unique_key="01",
        message_id="01",
        keys=(),
        sys_flag=0,
        born_host=Host("10.0.0.1", 1),
        store_host=Host("10.0.0.1", 1),
        queue_id=0,
        queue_offset=0,
        born_timestamp_ms=2**63 - 1,
        store_timestamp_ms=-(2**63),
        body=b"x",
        tag="",
    )
    for due in ("9" * 5_000, "9" * 19, "²", "-1"):
        head.properties = {TIMER_DELIVER_MS: due}
        system = to_deliver(head, pb.Resource(name="normal")).system_properties
        assert system.born_timestamp.ToMilliseconds() == LAST_MS
        assert system.store_timestamp.ToMilliseconds() == FIRST_MS


def test_a_client_that_does_not_read_its_answers_is_not_read_from():
    read: list[int] = []

    async def commands():
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.topics.add(name="normal")
        for number in range(100):
            read.append(number)
            yield pb.TelemetryCommand(settings=settings).SerializeToString()

    async def play() -> None:
        session = session_of(AsyncMock(), "slow")
        answers = telemetry(session, commands(), SystemClock())
        for number in range(3):
            await anext(answers)
            for _ in range(50):  # turns of the loop, in which it would read on
                await asyncio.sleep(0)
            assert read == [*range(number + 1)]
        await answers.aclose()
        assert session.producer_of == frozenset(), "nobody asks a producer that is gone"

    asyncio.run(play())


def test_what_a_filter_selects_is_given_when_the_others_cannot_be_settled(monkeypatch):
    """They would be hidden for as long as if they had been given."""
    others, wanted = (SimpleNamespace(properties={"kind": kind}) for kind in ("other", "wanted"))
    refuse = AsyncMock(side_effect=BusyError("later"))
    monkeypatch.setattr(receiving, "_settle", refuse)
    monkeypatch.setattr(receiving, "receipts_of", list)
    monkeypatch.setattr(receiving, "_handed", lambda given: given)
    session = session_of(AsyncMock())
    session.client.run.return_value = [[(others, 1), (wanted, 1)]]
    request = pb.ReceiveMessageRequest(auto_renew=True)
    request.group.name, request.message_queue.topic.name = "g", "normal"
    request.filter_expression.type = pb.SQL
    request.filter_expression.expression = "kind = 'wanted'"
    receive = receiving.ReceiveMessage(SystemClock())
    asked = receive.asked(request)
    assert asyncio.run(receive._take(session, request, asked, 0)) == [(wanted, 1)]
    session.client.run.return_value = [[(others, 1)]]
    with pytest.raises(BusyError):
        asyncio.run(receive._take(session, request, asked, 0))


@pytest.mark.parametrize(("own_id", "given_back"), [("", True), ("client's", False)])
def test_what_a_call_was_given_when_its_client_left_goes_to_others(
    monkeypatch, tmp_path, own_id, given_back
):
    """A client with an attempt id of its own is given it again."""
    settle = AsyncMock(return_value=[b""])
    monkeypatch.setattr(receiving, "_settle", settle)
    monkeypatch.setattr(receiving, "receipts_of", list)
    monkeypatch.setattr(receiving, "_handed", lambda given: given)
    request = pb.ReceiveMessageRequest(auto_renew=True, attempt_id=own_id)
    request.group.name, request.message_queue.topic.name = "g", "normal"
    receive = receiving.ReceiveMessage(SystemClock())
    attempts: list[str] = []

    async def play() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def run(operation):
            attempts.append(operation.request.workers[0].attempt_id)
            if len(attempts) == 1:
                asked.set()
                await answer.wait()  # it is on its way, and does not come
            return [[("lost", 1)]]

        front = Front(tmp_path)
        session = ClientSession("c", Caller("127.0.0.1"), CallersClients(front))
        monkeypatch.setattr(session.client, "_run", run)
        call = asyncio.create_task(receive._take(session, request, receive.asked(request), 20))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await session.close()
        await front.close()

    asyncio.run(play())
    assert len(attempts) == 1 + given_back
    assert len(set(attempts)) == 1, "the lost answer is asked for again"
    assert attempts[0], "without an id, a call that is made again is given other messages"
    assert [one.args[1::2] for one in settle.await_args_list] == (
        [("ReturnMessages", ["lost"])] if given_back else []
    )
