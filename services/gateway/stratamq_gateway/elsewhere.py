"""Requests to clients that are connected at the broker's other gateways. A gateway calls each of
the others, which passes on to its own clients and returns what these answer:

    tool ── 307 ──► gateway ── AskClients ──► gateway-2 ── 307 ──► consumer
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

from stratamq.errors import NotFoundError, UnavailableError
from stratamq.rpc.discovery import run_file
from stratamq.rpc.endpoints import Channels
from stratamq.service.classic_calls import ClientAnswer, ClientRequest, ask_clients
from stratamq.service.room_lock import room_lock_holder
from stratamq_gateway.codes import ResponseCode
from stratamq_gateway.config import GatewayConfig
from stratamq_gateway.connection import ANSWER_S
from stratamq_gateway.frames import Command, field_text
from stratamq_gateway.members import ConnectedClients

LANGUAGE_WITH_LISTS = "CPP"
START_S = 2.5
"""For so long a gateway that has started waits to be told who is at others. Java's clients wait 3 s
for a list, and do without a new one then."""
TOLD_S = 2.0
"""A gateway that runs has told its clients by then. A tool waits for 3 s."""


class ClientsElsewhere:
    """Belongs to the event loop."""

    def __init__(self, channels: Channels, config: GatewayConfig) -> None:
        self._channels = channels
        self._root = config.root
        self._here = f"gateway{config.instance()}"
        self.told_all = asyncio.Event()
        self._are_known = False

    async def known(self) -> None:
        """Clients get no list before it, or each would take the queues of those that are not on it.
        If the delivery service does not answer, they get one of this gateway's own consumers."""
        if not self._are_known and self.others():
            with suppress(TimeoutError):
                async with asyncio.timeout(START_S):
                    await self.told_all.wait()
        self._are_known = True

    async def ask(
        self, group: str, client_id: str, code: int, fields: Mapping[str, object], body: bytes
    ) -> Command:
        """A client's answer. `group`: in which it consumes; "": it produces. NotFoundError: it is
        connected nowhere. TimeoutError: a gateway that may have it hangs."""
        request = ClientRequest(group, client_id, code, _texts(fields), body)
        calls = [asyncio.create_task(one) for one in self._calls(request, ANSWER_S + 1)]
        hangs = False
        try:
            for answer in asyncio.as_completed(calls):
                try:
                    said = await answer
                except TimeoutError:
                    hangs = True
                except (NotFoundError, UnavailableError):
                    continue  # it is not there, or the gateway has gone, and its clients with it
                else:
                    return Command(said.code, said.fields, said.body, remark=said.remark)
        finally:
            for one in calls:
                one.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        if hangs:
            raise TimeoutError
        raise NotFoundError(f"the client {client_id} is not connected")

    async def tell(
        self, group: str, code: int, fields: Mapping[str, object], body: bytes, with_lists: bytes
    ) -> None:
        """All consumers of the group that are elsewhere. UnavailableError: a gateway hangs, and may
        not have told those that it has."""
        request = ClientRequest(group, "", code, _texts(fields), body, with_lists, tells_all=True)
        for told in await asyncio.gather(*self._calls(request, TOLD_S), return_exceptions=True):
            if isinstance(told, TimeoutError):
                raise UnavailableError(
                    "a gateway of the broker hangs, and has not told its clients"
                )
            if isinstance(told, BaseException) and not isinstance(told, UnavailableError):
                raise told

    def _calls(
        self, request: ClientRequest, timeout_s: float
    ) -> list[Coroutine[Any, Any, ClientAnswer]]:
        return [ask_clients(self._channels, one, request, timeout_s) for one in self.others()]

    def others(self) -> list[str]:
        """Gateways of the broker that run, by the names of their run files."""
        files = run_file(self._root, "gateway").parent.glob("gateway*.json")
        # Not its own lock: to look at that would be to let go of it.
        found = [one.stem for one in files if one.stem != self._here]
        return [one for one in found if room_lock_holder(self._root, one) is not None]


def _texts(fields: Mapping[str, object]) -> dict[str, str]:
    return {name: field_text(value) for name, value in fields.items()}


async def ask_here(members: ConnectedClients, asked: ClientRequest) -> ClientAnswer:
    """What another gateway asks. NotFoundError: the client is not connected here."""
    content = (asked.code, asked.fields, asked.body)
    if asked.tells_all:
        tell_here(members, asked.group, *content, asked.body_with_lists)
        return ClientAnswer(ResponseCode.SUCCESS)
    consumer = members.consumer_here(asked.group, asked.client_id)
    channel = consumer.channel if consumer else None
    if not asked.group:
        channel = members.producer(asked.client_id)
    try:
        if channel is None:
            raise NotFoundError("the client is connected to another gateway, or to none")
        said = await channel.ask(*content)
    except UnavailableError as error:
        raise NotFoundError(str(error)) from error
    except TimeoutError:
        remark = f"the client {asked.client_id} has not answered"
        return ClientAnswer(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark)
    return ClientAnswer(said.code, said.fields, said.body, said.remark)


def tell_here(
    members: ConnectedClients,
    group: str,
    code: int,
    fields: Mapping[str, object],
    body: bytes,
    with_lists: bytes,
) -> None:
    """All consumers of the group that are connected here."""
    found = members.groups.get(group)
    for one in list(found.consumers.values()) if found else ():
        is_other = one.channel.language == LANGUAGE_WITH_LISTS
        one.channel.notify(code, dict(fields), with_lists if is_other else body)
