"""DeliveryService: messages of the wire in, calls of the machines out, and nothing else."""

from stratamq.api.v1 import delivery_pb2 as pb
from stratamq.api.v1 import delivery_pb2_grpc
from stratamq.follow.fold import FoldPlace
from stratamq.follow.own_appends import OwnAppends
from stratamq.service.entrance import Call
from stratamq_delivery.levels import Levels

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["DeliveryService"].full_name


class DeliveryServicer(delivery_pb2_grpc.DeliveryServiceServicer):
    """Belongs to the event loop of the fold."""

    def __init__(self, followed: FoldPlace, appends: OwnAppends, levels: Levels) -> None:
        self._followed = followed
        self._appends = appends
        self._levels = levels

    async def GetDeliveryStatus(
        self, request: pb.GetDeliveryStatusRequest, call: Call
    ) -> pb.GetDeliveryStatusResponse:
        followed, levels = self._followed, self._levels
        return pb.GetDeliveryStatusResponse(
            applied_offset=followed.applied,
            durable_offset=followed.durable,
            log_confirmed_offset=followed.confirmed,
            serving=followed.serving,
            stopped_reason=followed.stopped_reason,
            active=self._appends.is_active,
            delayed_messages=len(levels),
            levels=[
                pb.DelayLevel(
                    level=level + 1,
                    messages=queue.open,
                    position=queue.position,
                    next_due_ms=0 if queue.head is None else queue.head.due_ms,
                )
                for level, queue in sorted(levels.queues.items())
            ],
        )
