"""What every service tells clients of its broker: which services it has, and where they are."""

import asyncio
from pathlib import Path

from stratamq.api.v1 import broker_pb2 as pb
from stratamq.rpc import discovery
from stratamq.rpc.rooms import COMMITLOG, SERVICES
from stratamq.service.entrance import Call


class BrokerServicer:
    """Reads the run files of the store directory `root` at each call."""

    def __init__(self, root: Path, room: str) -> None:
        self._root = root
        self._room = room

    async def DescribeBroker(
        self, request: pb.DescribeBrokerRequest, call: Call
    ) -> pb.DescribeBrokerResponse:
        # A disk that blocks must not block the event loop.
        return await asyncio.to_thread(describe, self._root, self._room)


def describe(root: Path, room: str) -> pb.DescribeBrokerResponse:
    """What the service `room` answers."""
    found = {one: discovery.read(root, one) for one in SERVICES}
    log = found[COMMITLOG]
    return pb.DescribeBrokerResponse(
        broker_name="" if log is None else log.broker_name,
        broker_id=0 if log is None else log.broker_id,
        services=[
            pb.ServicePlace(service=name, address=one.advertised or one.address)
            for name, one in found.items()
            if one is not None
        ],
        answered_by=room,
    )
