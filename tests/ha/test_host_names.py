"""Names of hosts while a name server does not answer for one of them."""

import asyncio
import socket
import threading

import pytest
from stratamq_ha.host_names import HostNames, look_up

PORT = 10912
ASKERS = 100


async def test_an_address_is_found_as_it_is():
    found = await HostNames().addresses("127.0.0.1", PORT)
    result = {where for *_, where in found}
    assert result == {("127.0.0.1", PORT)}


def test_a_name_that_is_not_answered_for_holds_up_no_other_and_has_one_thread():
    answered = threading.Event()
    asked: list[str] = []

    def slow(host: str, port: int) -> list:
        asked.append(host)
        if host == "lost":
            answered.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return look_up("127.0.0.1", port)

    async def scenario() -> None:
        names = HostNames(slow)
        lost = [asyncio.ensure_future(names.addresses("lost", PORT)) for _ in range(ASKERS)]
        for one in lost[1:]:
            await asyncio.sleep(0)
            one.cancel()
        async with asyncio.timeout(30):
            assert await names.addresses("alive", PORT)
        answered.set()
        with pytest.raises(OSError, match="no answer"):
            await lost[0]
        with pytest.raises(OSError, match="no answer"):
            await names.addresses("lost", PORT)

    try:
        asyncio.run(scenario())
    finally:
        answered.set()
    assert asked == ["lost", "alive", "lost"]


async def test_a_loop_ends_while_a_look_up_is_running():
    answered = threading.Event()

    def slow(host: str, port: int) -> list:
        answered.wait(60)
        return []

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await HostNames(slow).addresses("lost", PORT)
    answered.set()
