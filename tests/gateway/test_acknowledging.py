"""AckMessage without a broker: what goes out together, and what each client is told."""

import asyncio

import pytest
from stratamq_gateway.messaging import acknowledging
from stratamq_gateway.messaging.acknowledging import AckMessage, Acknowledgements, acknowledged
from stratamq_gateway.messaging.receiving import OfSharedGroup
from stratamq_gateway.messaging.statuses import status

from stratamq.api.rocketmq import messaging_pb2 as pb
from stratamq.api.v1.delivery_pb2 import SettleOutcome
from stratamq.errors import UnavailableError
from stratamq.formats.receipts import make_receipt
from stratamq.rpc.request_ids import Request, within

ASKED = OfSharedGroup("workers", "orders")


class Client:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[bytes], asyncio.Future[list[SettleOutcome]]]] = []

    def finish(self, work):
        return asyncio.ensure_future(work)

    async def run(self, operation):
        answer = asyncio.get_running_loop().create_future()
        self.calls.append((list(operation.request.receipts), answer))
        return await answer


async def begun(client: Client, those: Acknowledgements, names: str) -> list[asyncio.Task]:
    tasks = [asyncio.ensure_future(those.settle(client, ASKED, [name.encode()])) for name in names]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_what_comes_at_one_moment_or_meanwhile_goes_out_together():
    client, those = Client(), Acknowledgements()
    first = await begun(client, those, "ab")
    second = await begun(client, those, "c")
    third = await begun(client, those, "def")
    assert [receipts for receipts, _ in client.calls] == [[b"a", b"b"], [b"c"]]
    client.calls[0][1].set_result([])
    assert await asyncio.gather(*first) == [[""], [""]]
    third[0].cancel()
    await asyncio.sleep(0)
    assert client.calls[2][0] == [b"d", b"e", b"f"]
    outcomes = [SettleOutcome(refusal=one) for one in ("of d", "", "of f")]
    client.calls[2][1].set_result(outcomes)
    assert await asyncio.gather(*third[1:]) == [[""], ["of f"]]
    client.calls[1][1].set_result([])
    assert await asyncio.gather(*second) == [[""]]


async def test_all_of_a_call_that_fails_are_told_so_and_the_next_ones_go_out():
    client, those = Client(), Acknowledgements()
    acknowledgements = await begun(client, those, "ab")
    client.calls[0][1].set_exception(UnavailableError("away"))
    for found in await asyncio.gather(*acknowledgements, return_exceptions=True):
        assert isinstance(found, UnavailableError)
    (task,) = await begun(client, those, "c")
    client.calls[1][1].set_result([])
    assert await task == [""]


async def test_one_call_has_no_more_than_the_delivery_service_takes(monkeypatch):
    monkeypatch.setattr(acknowledging, "MAX_TOGETHER", 2)
    client, those = Client(), Acknowledgements()
    tasks = await begun(client, those, "abc")
    client.calls[0][1].set_result([])
    for _ in range(3):
        await asyncio.sleep(0)
    client.calls[1][1].set_result([])
    assert await asyncio.gather(*tasks) == [[""]] * 3
    assert [receipts for receipts, _ in client.calls] == [[b"a", b"b"], [b"c"]]


async def test_a_recorded_one_has_a_call_of_its_own():
    client, those, request = Client(), Acknowledgements(), Request()
    request.span = object()
    with within(request):
        tasks = await begun(client, those, "ab")
    assert [receipts for receipts, _ in client.calls] == [[b"a"], [b"b"]]
    for task in tasks:
        task.cancel()


class Session:
    def __init__(self, client: Client) -> None:
        self.client = client


@pytest.mark.parametrize("handle", ["no handle", make_receipt(bytes(41), 0, 2, 0, 100).hex()])
async def test_what_is_no_handle_of_one_message_is_refused_beside_others(handle):
    """One that said it is of several messages would have the outcomes of others' as its own."""
    client, method = Client(), AckMessage()
    request = pb.AckMessageRequest(
        group=pb.Resource(name="workers"),
        topic=pb.Resource(name="orders"),
        entries=[pb.AckMessageEntry(receipt_handle=one) for one in (handle, "AA")],
    )
    task = asyncio.ensure_future(method.answer(Session(client), request, method.asked(request)))
    while not client.calls:
        await asyncio.sleep(0)
    receipts, answer = client.calls[0]
    assert receipts == [b"", b"\xaa"]
    answer.set_result([SettleOutcome(refusal="none"), SettleOutcome()])
    found = await task
    assert [one.status.code for one in found.entries] == [pb.INVALID_RECEIPT_HANDLE, pb.OK]
    assert found.status.code == pb.MULTIPLE_RESULTS


def test_the_answer_is_the_one_of_messages_that_are_finished():
    given = [pb.AckMessageEntry(message_id="a" * 200, receipt_handle="BC"), pb.AckMessageEntry()]
    entries = [
        pb.AckMessageResultEntry(
            message_id=one.message_id, receipt_handle=one.receipt_handle, status=status(pb.OK)
        )
        for one in given
    ]
    expected = pb.AckMessageResponse(status=status(pb.OK), entries=entries)
    assert pb.AckMessageResponse.FromString(acknowledged(given)) == expected
