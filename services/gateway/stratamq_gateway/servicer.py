"""GatewayService: messages of the wire in, the gateway's numbers out."""

from stratamq.api.v1 import gateway_pb2 as pb
from stratamq.service.classic_calls import ClientRequest
from stratamq.service.entrance import Call
from stratamq_gateway.brokers import BrokerName
from stratamq_gateway.elsewhere import ask_here
from stratamq_gateway.listener import Listener
from stratamq_gateway.messaging.server import MessagingServer


class GatewayServicer:
    def __init__(
        self, listener: Listener, where: BrokerName, address: str, messaging: MessagingServer
    ) -> None:
        self._listener = listener
        self._where = where
        self._address = address
        self._messaging = messaging

    async def GetGatewayStatus(
        self, request: pb.GetGatewayStatusRequest, call: Call
    ) -> pb.GetGatewayStatusResponse:
        members = self._listener.members
        return pb.GetGatewayStatusResponse(
            remoting_address=self._address,
            advertised_address=self._where.address,
            connections=len(self._listener.connections),
            consumer_groups=len(members.groups),
            producer_groups=len(members.producers),
            grpc_address=self._messaging.address,
            grpc_clients=len(self._messaging.sessions),
            grpc_advertised_address=self._messaging.advertised(),
        )

    async def AskClients(self, request: pb.AskClientsRequest, call: Call) -> pb.AskClientsResponse:
        content = (request.code, dict(request.fields), request.body, request.body_with_lists)
        asked = ClientRequest(request.group, request.client_id, *content, request.tells_all)
        said = await ask_here(self._listener.members, asked)
        return pb.AskClientsResponse(**said._asdict())
