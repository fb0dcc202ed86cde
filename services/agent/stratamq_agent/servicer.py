"""The calls of the agent: see protos/stratamq/api/v1/agent.proto."""

import logging

import grpc

from stratamq.api.v1 import agent_pb2 as pb
from stratamq.rpc.credentials import Credentials
from stratamq.rpc.methods import METHODS
from stratamq.rpc.mirrors import message_of
from stratamq.service.entrance import Call
from stratamq_agent.agent import Agent

log = logging.getLogger(__name__)

WAKE_S = 1.0


class AgentServicer:
    """Belongs to the event loop. `store`: where the value is, for people."""

    def __init__(self, agent: Agent, store: str, ttl_ms: int) -> None:
        self._agent = agent
        self._store = store
        self._ttl_ms = ttl_ms

    async def GetElection(
        self, request: pb.GetElectionRequest, call: Call
    ) -> pb.GetElectionResponse:
        view = await self._agent.look()
        state = view.state
        return message_of(
            pb.GetElectionResponse,
            state,
            member=view.member,
            store=self._store,
            store_problem=view.store_problem,
            unchanged_ms=self._agent.watch.unchanged_ns // 1_000_000,
            ttl_ms=self._ttl_ms,
            last_action=view.last_action,
            agents=state.agents,
            problems=self._agent.problems,
        )

    async def Switchover(self, request: pb.SwitchoverRequest, call: Call) -> pb.SwitchoverResponse:
        await self._agent.request_switchover(request.member)
        return pb.SwitchoverResponse()

    async def SetPaused(self, request: pb.SetPausedRequest, call: Call) -> pb.SetPausedResponse:
        await self._agent.set_paused(request.paused)
        return pb.SetPausedResponse()

    async def Wake(self, request: pb.WakeRequest, call: Call) -> pb.WakeResponse:
        self._agent.wake()
        return pb.WakeResponse()


async def wake(credentials: Credentials, address: str) -> None:
    """Make the agent at `address` look now. One that does not answer looks by itself."""
    async with credentials.connect(grpc.aio, address, None) as channel:
        try:
            await METHODS["Wake"].on(channel)(pb.WakeRequest(), timeout=WAKE_S)
        except grpc.aio.AioRpcError as error:
            log.info("an agent was not woken", extra={"address": address, "why": error.details()})
