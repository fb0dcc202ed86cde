"""Where a reader begins, and what it commits, without a wire."""

import re
from datetime import UTC, datetime

import pytest

from stratamq.api.v1 import dispatcher_pb2
from stratamq.api.v1.commitlog_pb2 import GetStatusResponse
from stratamq.client import operations
from stratamq.client._sync.calls import run_plan
from stratamq.client.consuming import (
    Range,
    ReadQueues,
    Subscription,
    plan_between,
    plan_ends,
)
from stratamq.client.reading import EARLIEST, LATEST, AtTime, Reading
from stratamq.client.values import Queue, Topic
from stratamq.errors import InvalidRequestError, NotFoundError, StrataError, UnavailableError
from stratamq.formats import frame
from stratamq.formats.log_state import LogState
from stratamq.rpc.framing import PULL_STREAM_RESPONSE


class Answers:
    """Runs operations by the name of their RPC; an exception among the answers is raised. The log
    service is away unless its answer is given."""

    def __init__(self, **answers: object) -> None:
        self.answers = {"GetStatus": UnavailableError("away")} | answers
        self.asked: list[str] = []

    def __call__(self, operation):
        name = operation.method.path.rpartition("/")[2]
        self.asked.append(name)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer(operation.request) if callable(answer) else answer


TWO_QUEUES = [Queue("t", 0, 10, 20, 0), Queue("t", 1, 0, 5, 0)]


def consume(
    answers: Answers,
    topic="t",
    queues=None,
    start=EARLIEST,
    group=None,
    follow=False,
    until=None,
) -> list[tuple[int, int, int | None]]:
    reading = Reading(queues, start, until, group=group, follow=follow)
    ranges = run_plan(answers, Subscription(topic, reading).plan())
    return [(one.queue_id, one.offset, one.end) for one in ranges]


def test_from_the_beginning_to_the_present_end():
    assert consume(Answers(ListQueues=TWO_QUEUES)) == [(0, 10, 20), (1, 0, 5)]


def test_the_present_end_is_the_logs_not_what_the_dispatcher_has_applied():
    asked = []

    def queues(request):
        asked.append(request.applied_offset)
        return TWO_QUEUES

    state = operations.log_state().result(GetStatusResponse(confirmed_offset=4711))
    answers = Answers(GetStatus=state, ListQueues=queues, ListTopics=[], GetOffsetByTime=0)
    consume(answers)
    run_plan(answers, plan_between("t", 1000, 2000))
    consume(answers, follow=True)
    assert asked == [4711, 4711, 0]


def test_from_the_end_there_is_nothing_unless_one_follows():
    answers = Answers(ListQueues=TWO_QUEUES, ListTopics=[])
    assert consume(answers, start=LATEST) == [(0, 20, 20), (1, 5, 5)]
    assert consume(answers, start=LATEST, follow=True) == [(0, 20, None), (1, 5, None)]


def test_an_offset_below_what_is_kept_begins_at_the_minimum():
    assert consume(Answers(ListQueues=TWO_QUEUES), start=3) == [(0, 10, 20), (1, 3, 5)]


def test_a_negative_place_is_so_many_messages_before_each_end():
    assert consume(Answers(ListQueues=TWO_QUEUES), start=-7) == [(0, 13, 20), (1, 0, 5)]
    assert consume(Answers(ListQueues=TWO_QUEUES), start=-99) == [(0, 10, 20), (1, 0, 5)]


def test_a_reader_ends_where_it_is_to_but_not_behind_what_is_there():
    answers = Answers(ListQueues=TWO_QUEUES, GetOffsetByTime=lambda request: 12 + request.queue_id)
    assert consume(answers, until=12) == [(0, 10, 12), (1, 0, 5)]
    assert consume(answers, until=-1) == [(0, 10, 19), (1, 0, 4)]
    assert consume(answers, until=AtTime(1000)) == [(0, 10, 12), (1, 0, 5)]
    with pytest.raises(InvalidRequestError, match="leave out follow or until"):
        consume(answers, until=12, follow=True)


def by_topic(request) -> list[Queue]:
    return [Queue(request.topic, 0, 0, 7, 0)] if request.topic in ("t", "t2") else []


def test_several_topics_are_read_each_with_its_queues():
    answers = Answers(ListQueues=by_topic, ListTopics=[])
    ranges = run_plan(answers, Subscription(["t2", "t", "t"], Reading()).plan())
    assert [(one.topic, one.offset, one.end) for one in ranges] == [("t", 0, 7), ("t2", 0, 7)]
    with pytest.raises(NotFoundError, match="no topic none"):
        run_plan(answers, Subscription(["t", "none"], Reading()).plan())


def test_a_pattern_is_of_whole_names():
    answers = Answers(ListQueues=by_topic, ListTopics=[Topic("t"), Topic("t2"), Topic("at2")])
    pattern = re.compile("t.*")
    ranges = run_plan(answers, Subscription(pattern, Reading(offset=LATEST)).plan())
    assert [(one.topic, one.offset, one.end) for one in ranges] == [("t", 7, 7), ("t2", 7, 7)]
    with pytest.raises(NotFoundError, match="no topic matches x"):
        run_plan(answers, Subscription(re.compile("x"), Reading(offset=LATEST)).plan())


@pytest.mark.parametrize("start", [LATEST, -1])
def test_what_appears_later_is_read_from_its_beginning(start):
    topics: list[Topic] = []
    answers = Answers(ListQueues=by_topic, ListTopics=lambda _: topics)
    later = Subscription(re.compile("t.*"), Reading(offset=start, follow=True))
    assert run_plan(answers, later.plan()) == []
    topics.append(Topic("t", read_queue_count=1))
    assert run_plan(answers, later.plan()) == [Range("t", 0, 0, None)]


def test_a_moment_is_looked_up_in_every_queue():
    answers = Answers(
        ListQueues=TWO_QUEUES,
        GetOffsetByTime=lambda request: 15 if request.queue_id == 0 else 2,
    )
    assert consume(answers, start=AtTime(1000)) == [(0, 15, 20), (1, 2, 5)]
    assert consume(answers, start=datetime(2013, 1, 1, tzinfo=UTC)) == [(0, 15, 20), (1, 2, 5)]


def test_a_group_continues_where_it_was_and_begins_elsewhere_as_configured():
    answers = Answers(ListQueues=TWO_QUEUES, GetCommittedOffsets={("t", 0): 17})
    assert consume(answers, group="g", start=LATEST) == [(0, 17, 20), (1, 5, 5)]


def test_only_the_queues_that_were_named_are_read():
    assert consume(Answers(ListQueues=TWO_QUEUES), queues=[1]) == [(1, 0, 5)]


def test_a_follower_takes_queues_that_have_no_message_yet():
    answers = Answers(ListQueues=TWO_QUEUES[:1], ListTopics=[Topic("t", read_queue_count=3)])
    assert consume(answers, follow=True) == [(0, 10, None), (1, 0, None), (2, 0, None)]


def test_what_is_stored_can_be_followed_without_the_log_service():
    answers = Answers(ListQueues=TWO_QUEUES, ListTopics=UnavailableError("away"))
    assert consume(answers, follow=True) == [(0, 10, None), (1, 0, None)]


def test_a_topic_that_does_not_exist_is_reported_unless_one_follows():
    answers = Answers(ListQueues=[], ListTopics=[Topic("empty", read_queue_count=2)])
    with pytest.raises(NotFoundError, match="no topic t"):
        consume(answers)
    assert consume(answers, follow=True) == []
    assert consume(answers, topic="empty") == [(0, 0, 0), (1, 0, 0)]


@pytest.mark.parametrize("start", ["soonest", ""])
def test_a_place_to_begin_that_is_none_is_refused(start):
    with pytest.raises(InvalidRequestError):
        consume(Answers(), start=start)


def looked_again(ranges: list[Range], **answers: object) -> list[tuple[int, int | None]]:
    """How a reader's ranges end once it has looked again."""
    now = reading(*ranges)
    now.shorten(run_plan(Answers(**answers), plan_ends(now.unfinished)))
    return [(one.queue_id, one.end) for one in now.ranges]


def log_at(confirmed: int, appended: int) -> LogState:
    status = GetStatusResponse(confirmed_offset=confirmed, appended_offset=appended)
    return operations.log_state().result(status)


def test_a_range_ends_where_its_queue_does_after_a_cut():
    shorter = [Queue("t", 0, 10, 15, 0)]
    planned = run_plan(
        Answers(GetStatus=log_at(900, 1000), ListQueues=TWO_QUEUES, ListTopics=[]),
        Subscription("t", Reading()).plan(),
    )
    assert looked_again(planned, GetStatus=log_at(400, 400), ListQueues=shorter) == [
        (0, 15),
        (1, 0),
    ]
    assert looked_again(planned, GetStatus=log_at(900, 990), ListQueues=shorter) == [
        (0, 15),
        (1, 0),
    ]


def test_a_range_keeps_its_end_without_evidence_that_its_queue_was_cut():
    """A broker that starts again lists less than it did until everything is dispatched again."""
    planned = run_plan(
        Answers(GetStatus=log_at(900, 1000), ListQueues=TWO_QUEUES, GetOffsetByTime=5),
        plan_between("t", 0, 1),
    )
    planned = [Range("t", one.queue_id, 0, 5, log_end=one.log_end) for one in planned]
    shorter = [Queue("t", 0, 0, 3, 0)]
    kept = [(0, 5), (1, 5)]
    assert looked_again(planned, GetStatus=log_at(700, 1000), ListQueues=shorter) == kept
    with pytest.raises(UnavailableError):
        looked_again(planned, ListQueues=shorter)


def test_a_range_is_not_cut_to_what_the_dispatcher_has_applied():
    def queues(request):
        return TWO_QUEUES if request.applied_offset >= 900 else [Queue("t", 0, 10, 12, 0)]

    planned = [Range("t", 0, 10, 20, log_end=900), Range("t", 1, 0, 5, log_end=900)]
    now = looked_again(planned, GetStatus=log_at(900, 900), ListQueues=queues)
    assert now == [(0, 20), (1, 5)]


def test_a_time_range_is_both_ends_inclusive():
    def offset(request):
        return {1000: 3, 2001: 9}[request.timestamp_ms]

    answers = Answers(ListQueues=TWO_QUEUES[:1], GetOffsetByTime=offset)
    assert run_plan(answers, plan_between("t", 1000, 2000)) == [Range("t", 0, 3, 9)]
    with pytest.raises(InvalidRequestError):
        run_plan(answers, plan_between("t", 2000, 1000))
    for topics, sentence in (
        ([], "there is no topic t"),
        ([Topic("t")], "the topic t holds no message"),
        (UnavailableError("away"), "t has no queue with a message"),
    ):
        answers = Answers(ListQueues=[], ListTopics=topics)
        with pytest.raises(NotFoundError, match=sentence):
            run_plan(answers, plan_between("t", 1, 2))


# --- what was read ---


def answer(stream_index: int, offsets: list[int], next_offset: int, generation: int = 0) -> bytes:
    frames = b"".join(
        frame.encode(
            topic=b"t", body=b"x", born_host=bytes(8), store_host=bytes(8), queue_offset=offset
        )
        for offset in offsets
    )
    head = dispatcher_pb2.PullStreamResponse(
        status=1,
        next_offset=next_offset,
        stream_index=stream_index,
        count=len(offsets),
        generation=generation,
    )
    return PULL_STREAM_RESPONSE.encode(head, frames)


def reading(*ranges: Range) -> Reading:
    made = ReadQueues(ranges, Reading())
    made.request()
    return made


def test_the_next_request_reads_on_where_the_answers_ended():
    made = reading(Range("t", 0, 0, 10), Range("t", 1, 0, None))
    list(made.receive(answer(0, [0, 1], 2)))
    list(made.receive(answer(1, [5], 9)))
    assert [(one.queue_id, one.offset) for one in made.request().queues] == [(0, 2), (1, 9)]


def test_a_queue_that_has_ended_is_not_asked_again():
    made = reading(Range("t", 0, 0, 2), Range("t", 1, 0, 4))
    list(made.receive(answer(0, [0, 1], 2)))
    assert [one.queue_id for one in made.request().queues] == [1]
    assert not made.ended
    list(made.receive(answer(0, [3], 4)))
    assert made.ended


def test_a_message_counts_as_taken_when_the_next_one_is_asked_for():
    made = reading(Range("t", 0, 0, None))
    messages = made.receive(answer(0, [0, 1, 2], 3))
    next(messages)
    assert made.uncommitted(given=False) == {}
    assert made.uncommitted(given=True) == {("t", 0): 1}
    next(messages)
    assert made.uncommitted(given=False) == {("t", 0): 1}
    made.committed({("t", 0): 1})
    assert made.uncommitted(given=False) == {}
    list(messages)
    assert made.uncommitted(given=False) == {("t", 0): 3}


def test_what_was_committed_as_given_is_not_taken_back_by_the_next_commit():
    made = reading(Range("t", 0, 0, None))
    messages = made.receive(answer(0, [0, 1, 2], 3))
    next(messages)
    made.hold()
    next(messages)
    offsets = made.uncommitted(given=True)
    assert offsets == {("t", 0): 2}
    made.committed(offsets)
    assert made.uncommitted(given=False) == {}
    next(messages)
    assert made.uncommitted(given=False) == {}
    list(messages)
    assert made.uncommitted(given=False) == {("t", 0): 3}


def test_messages_that_a_filter_passed_over_are_taken_too():
    made = reading(Range("t", 0, 0, None))
    list(made.receive(answer(0, [1], 50)))
    assert made.uncommitted(given=False) == {("t", 0): 50}


def test_a_reader_that_acknowledges_commits_that_and_no_more():
    made = ReadQueues([Range("t", 0, 0, None), Range("t", 1, 0, None)], Reading(acknowledged=True))
    made.request()
    first, second = made.receive(answer(0, [0, 1], 5))
    next(made.receive(answer(1, [7, 8], 9)))
    made.drop_given()
    assert made.uncommitted(given=True) == {}
    made.acknowledge(first)
    assert made.uncommitted(given=True) == {("t", 0): 1}
    made.acknowledge(second)
    made.acknowledge(first)
    assert made.uncommitted(given=False) == {("t", 0): 5}  # a filter passed over the rest
    with pytest.raises(InvalidRequestError, match="this reader reads"):
        reading(Range("t", 9, 0, None)).acknowledge(first)


def test_what_a_filter_passes_over_is_taken_once_all_before_it_is_acknowledged():
    made = ReadQueues([Range("t", 0, 0, None)], Reading(acknowledged=True))
    made.request()
    assert list(made.receive(answer(0, [], 4))) == []
    assert made.uncommitted(given=False) == {("t", 0): 4}
    (message,) = made.receive(answer(0, [4], 6))
    assert list(made.receive(answer(0, [], 9))) == []
    assert made.uncommitted(given=False) == {("t", 0): 4}
    made.acknowledge(message)
    assert made.uncommitted(given=False) == {("t", 0): 9}
    assert list(made.receive(answer(0, [], 12))) == []
    assert made.uncommitted(given=False) == {("t", 0): 12}


def test_a_reader_asks_by_the_generation_of_the_answer_before():
    made = reading(Range("t", 0, 0, None), Range("t", 1, 0, None))
    list(made.receive(answer(0, [0, 1], 2, generation=5)))
    assert [one.generation for one in made.request().queues] == [5, 0]
    assert made.generations == {("t", 0): 5, ("t", 1): 0}
    made.drop_given()
    made.seek(made.ranges[:1], [40])
    assert made.request().queues[0].generation == 0


def test_what_was_taken_of_a_lost_log_does_not_count():
    made = reading(Range("t", 0, 0, None))
    list(made.receive(answer(0, list(range(10)), 10, generation=5)))
    assert made.uncommitted(given=False) == {("t", 0): 10}
    made.hold()
    messages = made.receive(answer(0, [6, 7], 8, generation=6))
    next(messages)
    assert made.uncommitted(given=False) == {("t", 0): 6}
    made.release()
    assert made.uncommitted(given=False) == {("t", 0): 6}
    list(messages)
    assert made.uncommitted(given=False) == {("t", 0): 8}


def test_what_was_acknowledged_of_a_lost_log_does_not_count():
    made = ReadQueues([Range("t", 0, 0, None)], Reading(acknowledged=True))
    made.request()
    (*_, last) = made.receive(answer(0, list(range(10)), 10, generation=5))
    made.acknowledge(last)
    assert made.uncommitted(given=False) == {("t", 0): 10}
    first, _ = made.receive(answer(0, [6, 7], 8, generation=6))
    assert made.uncommitted(given=False) == {("t", 0): 6}
    made.acknowledge(first)
    assert made.uncommitted(given=False) == {("t", 0): 7}


def test_new_queues_are_taken_up_once():
    made = reading(Range("t", 0, 7, None))
    assert not made.extend([Range("t", 0, 0, None)])
    assert made.extend([Range("t", 0, 0, None), Range("t", 1, 0, None)])
    assert [one.offset for one in made.ranges] == [7, 0]


def test_an_answer_for_a_queue_that_was_not_asked_for_is_refused():
    with pytest.raises(StrataError):
        list(reading(Range("t", 0, 0, None)).receive(answer(3, [], 1)))


@pytest.mark.parametrize(
    ("tags", "asked"),
    [("A || B", ["A", "B"]), ("*", []), ("", []), (["A", "B"], ["A", "B"]), ("A", ["A"])],
)
def test_tags_are_names_or_rocketmqs_expression(tags, asked):
    assert list(ReadQueues([], Reading(tags=tags)).request().tags) == asked
