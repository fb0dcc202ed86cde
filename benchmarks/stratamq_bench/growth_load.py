"""What may be many beside topics and queues: followers, connections, generations."""

import queue
import random
import sys
import threading
import time
from pathlib import Path

import grpc
from stratamq_commitlog.recovery.own_state import OwnState, extend, next_generation

from stratamq.api.v1 import commitlog_pb2 as pb
from stratamq.files.real import RealFiles
from stratamq.rpc import discovery
from stratamq.rpc.methods import METHODS

REPORT_S = 1.0
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


def hold(root: str, connections: int, followers: int) -> None:
    """Open them, print a line, and keep them until it is killed."""
    channels = [_channel(Path(root)) for _ in range(connections)]
    for channel in channels:
        METHODS["GetStatus"].on(channel)(pb.GetStatusRequest())
    for number in range(followers):
        name = f"follower-{number}"
        threading.Thread(target=_follow, args=(_channel(Path(root)), name), daemon=True).start()
    print("open", flush=True)
    sys.stdin.read()


def begin_generations(root: Path, count: int) -> int:
    """Pretend that the log of this directory was started this many times; return how many its list
    keeps."""
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
    """Receives every event, and reports once a second, as the services do."""
    asked: queue.SimpleQueue[pb.FollowRequest] = queue.SimpleQueue()
    asked.put(pb.FollowRequest(open=pb.FollowOpen(name=name)))
    reported = 0.0
    for response in METHODS["Follow"].on(channel)(iter(asked.get, None)):
        if response.WhichOneof("kind") != "event" or time.monotonic() < reported + REPORT_S:
            continue
        reported, end = time.monotonic(), response.event.end_offset
        report = pb.FollowReport(applied_offset=end, durable_offset=end, released_offset=end)
        asked.put(pb.FollowRequest(report=report))
