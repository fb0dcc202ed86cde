"""Many brokers of different names in one process, each of which only answers what clients ask.

Each listens at an address of its own of this machine and has the topics t0, t1, …; a group has read
all of them; what is sent is answered and dropped. `serve_all` prints {"hosts": […], "port": …}
once they listen, and ends when its input does.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from stratamq.api.v1 import broker_pb2, commitlog_pb2, common_pb2, dispatcher_pb2
from stratamq.rpc.methods import BROKER_SERVICE, service_of
from stratamq.rpc.paging import PAGE_ENTRIES, page
from stratamq.rpc.rooms import COMMITLOG, DISPATCHER
from stratamq.service.guarded_handlers import handlers_of

THREADS = 8
GROUP = "g"


def host_of(number: int) -> str:
    """Return an address of the loopback network."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


class LightBroker:
    """One broker's answers."""

    def __init__(self, name: str, address: str, topics: int, queues: int) -> None:
        places = [
            broker_pb2.ServicePlace(service=room, address=address)
            for room in (COMMITLOG, DISPATCHER)
        ]
        self._description = broker_pb2.DescribeBrokerResponse(
            broker_name=name, services=places, answered_by=COMMITLOG
        )
        self._state = commitlog_pb2.GetStatusResponse(
            role=common_pb2.BROKER_ROLE_ASYNC_MASTER,
            broker_name=name,
            writable=True,
            generations=[common_pb2.Generation(generation=hash(address) >> 1)],
        )
        self._topics = {
            name: common_pb2.TopicConfig(
                topic=name, read_queue_count=queues, write_queue_count=queues, permission=6
            )
            for name in (f"t{number}" for number in range(topics))
        }
        places_of = [(topic, queue) for topic in self._topics for queue in range(queues)]
        self._queues = [
            dispatcher_pb2.QueueInfo(topic=topic, queue_id=queue, max_offset=100)
            for topic, queue in places_of
        ]
        self._groups = [
            dispatcher_pb2.GroupInfo(
                group=GROUP, topic=topic, queue_id=queue, offset=90, max_offset=100, lag=10
            )
            for topic, queue in places_of
        ]

    def DescribeBroker(self, request: Any, _: object) -> broker_pb2.DescribeBrokerResponse:
        return self._description

    def GetStatus(self, request: Any, _: object) -> commitlog_pb2.GetStatusResponse:
        return self._state

    def ListTopics(self, request: Any, _: object) -> commitlog_pb2.ListTopicsResponse:
        if request.topic:
            found = [self._topics[request.topic]] if request.topic in self._topics else []
            return commitlog_pb2.ListTopicsResponse(topics=found)
        return commitlog_pb2.ListTopicsResponse(
            **_page(list(self._topics.values()), "topics", request)
        )

    def ListQueues(self, request: Any, _: object) -> dispatcher_pb2.ListQueuesResponse:
        return dispatcher_pb2.ListQueuesResponse(**_page(self._queues, "queues", request))

    def ListGroups(self, request: Any, _: object) -> dispatcher_pb2.ListGroupsResponse:
        return dispatcher_pb2.ListGroupsResponse(**_page(self._groups, "groups", request))

    def Append(self, request: Any, _: object) -> commitlog_pb2.AppendResponse:
        stored = commitlog_pb2.AppendResult(status=common_pb2.PUT_MESSAGE_STATUS_PUT_OK)
        return commitlog_pb2.AppendResponse(results=[stored] * len(request.messages))


def _page(rows: list[Any], name: str, request: Any) -> dict[str, Any]:
    some, following = page(rows, request.position, 0, most=PAGE_ENTRIES, size=lambda _: 1)
    return {name: some, "next_position": following}


def serve_all(shards: int, topics: int, queues: int) -> None:
    """Serve until the input ends; all listen at one port. OSError when there is none for all."""
    pool = ThreadPoolExecutor(THREADS)
    servers: list[grpc.Server] = []
    services = (BROKER_SERVICE, service_of(COMMITLOG), service_of(DISPATCHER))
    port = 0
    for number in range(shards):
        server = grpc.server(pool)
        port = server.add_insecure_port(f"{host_of(number)}:{port}") or port
        broker = LightBroker(f"s{number:03}", f"{host_of(number)}:{port}", topics, queues)
        server.add_generic_rpc_handlers([handlers_of(one, broker) for one in services])
        server.start()
        servers.append(server)
    print(json.dumps({"hosts": [*map(host_of, range(shards))], "port": port}), flush=True)
    sys.stdin.read()
    for server in servers:
        server.stop(None)
