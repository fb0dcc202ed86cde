"""Runs in a pod: sends one message as a client of RocketMQ 5's gRPC protocol does, by the route
that a gateway gives, and prints the address that the route names, and the answer's code.

ADDRESS TOPIC BODY
"""

import sys

import grpc

from stratamq.api.rocketmq import messaging_pb2 as pb

SERVICE = "/apache.rocketmq.v2.MessagingService/"
METADATA = (("x-mq-client-id", "pod"),)

address, topic, body = sys.argv[1:]


def call(at, method, request, response):
    with grpc.insecure_channel(at) as channel:
        stub = channel.unary_unary(SERVICE + method, request.SerializeToString, response.FromString)
        return stub(request, timeout=60, metadata=METADATA, wait_for_ready=True)


name = pb.Resource(name=topic)
route = call(address, "QueryRoute", pb.QueryRouteRequest(topic=name), pb.QueryRouteResponse)
(place,) = {
    f"{one.host}:{one.port}"
    for queue in route.message_queues
    for one in queue.broker.endpoints.addresses
}
system = pb.SystemProperties(
    message_id=f"01{hash(body) & 0xFFFF:032X}", message_type=pb.NORMAL, born_host="pod"
)
message = pb.Message(topic=name, system_properties=system, body=body.encode())
answer = call(
    place, "SendMessage", pb.SendMessageRequest(messages=[message]), pb.SendMessageResponse
)
print(place, pb.Code.Name(answer.status.code))
