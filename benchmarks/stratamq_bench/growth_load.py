"""What may be many beside topics and queues: followers, connections, generations."""

import queue
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
from stratamq_commitlog.own_state import OwnState, extend, next_generation

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.api.v1 import commitlog_pb2_grpc
from stratamq.files.real import RealFiles
from stratamq.rpc import discovery

_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


@contextmanager
def connections(root: Path, count: int) -> Iterator[None]:
    """So many clients, each with a connection of its own on which it has asked once."""
    with ExitStack() as stack:
        for _ in range(count):
            channel = stack.enter_context(_channel(root))
            commitlog_pb2_grpc.CommitLogServiceStub(channel).GetStatus(pb.GetStatusRequest())
        yield


@contextmanager
def followers(root: Path, count: int) -> Iterator[None]:
    """So many streams that follow the log from its beginning, and report what they hear of."""
    with ExitStack() as stack:
        threads = []
        for number in range(count):
            channel = stack.enter_context(_channel(root))
            thread = threading.Thread(target=_follow, args=(channel, f"follower-{number}"))
            thread.start()
            threads.append(thread)
        try:
            yield
        finally:
            stack.close()
            for thread in threads:
                thread.join()


def begin_generations(root: Path, count: int) -> int:
    """As if the log of this directory had been started so often; how many its list keeps."""
    files, chance = RealFiles(root), random.Random(1)
    state = OwnState(files)
    state.load()
    listed, segment_bytes = state.generations, state.segment_bytes
    assert segment_bytes is not None
    for _ in range(count):
        listed = extend(listed, next_generation(listed[-1], listed[-1].start, chance))
    state.store_generations(listed, segment_bytes)
    return len(listed)


def _channel(root: Path) -> grpc.Channel:
    endpoint = discovery.read(root, "commitlog")
    assert endpoint is not None, "the log is not running"
    return grpc.insecure_channel(endpoint.address, _OWN_CONNECTION)


def _follow(channel: grpc.Channel, name: str) -> None:
    asked: queue.SimpleQueue[pb.FollowRequest] = queue.SimpleQueue()
    asked.put(pb.FollowRequest(open=pb.FollowOpen(name=name)))
    stub = commitlog_pb2_grpc.CommitLogServiceStub(channel)
    try:
        for response in stub.Follow(iter(asked.get, None)):
            if response.WhichOneof("kind") == "event":
                end = response.event.end_offset
                report = pb.FollowReport(
                    applied_offset=end, durable_offset=end, released_offset=end
                )
                asked.put(pb.FollowRequest(report=report))
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.CANCELLED:
            raise
    finally:
        asked.put(None)
