"""Tables of the dispatcher on the wire, a page at a time."""

from stratamq.api.v1 import dispatcher_pb2 as pb
from stratamq.errors import InvalidRequestError, UnavailableError
from tests.dispatcher.running_service import RunningService, error_of


async def pages_of(method, request) -> list:
    """The answers of a table in pages, two entries at a time."""
    request.max_entries = request.max_entries or 2
    answers = [await method(request)]
    while answers[-1].next_position:
        request.position = answers[-1].next_position
        if isinstance(request, pb.GetCommittedOffsetsRequest | pb.ListGroupsRequest):
            request.incarnation = answers[-1].incarnation
        answers.append(await method(request))
    return answers


async def test_queues_and_group_offsets_come_in_pages(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(60, topics=2, queues=3)
        service.follow()
        stub = service.stub
        pages = await pages_of(stub.ListQueues, pb.ListQueuesRequest())
        known = {(topic, queue_id) for topic, queue_id in service.log.next_queue_offset}
        assert [len(page.queues) for page in pages] == [2, 2, 2]
        assert {(q.topic, q.queue_id) for page in pages for q in page.queues} == known
        pages = await pages_of(stub.ListQueues, pb.ListQueuesRequest(topic="topic-1"))
        assert [len(page.queues) for page in pages] == [2, 1]
        offsets = [pb.GroupOffset(topic=t, queue_id=q, offset=1) for t, q in sorted(known)]
        await stub.CommitOffsets(pb.CommitOffsetsRequest(group="g", offsets=offsets))
        asked = pb.GetCommittedOffsetsRequest(group="g")
        pages = await pages_of(stub.GetCommittedOffsets, asked)
        assert [one for page in pages for one in page.offsets] == offsets
        pages = await pages_of(stub.ListGroups, pb.ListGroupsRequest())
        assert [len(page.groups) for page in pages] == [2, 2, 2]


async def test_a_position_of_another_start_is_refused_and_a_negative_one_too(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(60, topics=2, queues=3)
        service.follow()
        answer = await service.stub.ListQueues(pb.ListQueuesRequest(max_entries=2))
        service.engine.queues.incarnation += 1
        asked = pb.ListQueuesRequest(position=answer.next_position)
        assert isinstance(await error_of(service.stub.ListQueues(asked)), UnavailableError)
        for wrong in ({"position": -1}, {"max_entries": -1}):
            error = await error_of(service.stub.ListQueues(pb.ListQueuesRequest(**wrong)))
            assert isinstance(error, InvalidRequestError)


async def test_a_position_in_groups_of_another_start_is_refused(tmp_path):
    async with RunningService(tmp_path) as service:
        service.log.put_many(60, topics=2, queues=3)
        service.follow()
        for method, request in (
            (service.stub.ListGroups, pb.ListGroupsRequest(max_entries=2)),
            (
                service.stub.GetCommittedOffsets,
                pb.GetCommittedOffsetsRequest(group="g", max_entries=2),
            ),
        ):
            offsets = [pb.GroupOffset(topic="topic-1", queue_id=q, offset=1) for q in range(3)]
            await service.stub.CommitOffsets(pb.CommitOffsetsRequest(group="g", offsets=offsets))
            answer = await method(request)
            request.position = answer.next_position
            assert isinstance(await error_of(method(request)), UnavailableError)
            request.incarnation = answer.incarnation
            assert (await method(request)).next_position == 0
