"""Runs plans of questions (`rpc.questions`): `Questions` over gRPC's threads, `AsyncQuestions` over
an event loop.

A question that a plan leaves unanswered continues in the background until it is answered, its time
is over, or its channel is closed. An answer ends its address's silence.
"""

import asyncio
import queue
from typing import Any, TypeVar

import grpc

from stratamq.errors import StrataError, UnavailableError
from stratamq.rpc.endpoints import Channels
from stratamq.rpc.explaining import stream_error
from stratamq.rpc.questions import LONGEST_ANSWER_S, Answers, Plan, Question, Silence

R = TypeVar("R")


class _Questions:
    def __init__(self, channels: Channels, silence: Silence, timeout_s: float) -> None:
        self._channels = channels
        self._silence = silence
        self._timeout_s = min(timeout_s, LONGEST_ANSWER_S)


class Questions(_Questions):
    """Thread-safe."""

    def ask(self, plan: Plan[R]) -> R | StrataError:
        """What the plan ends with, or its error."""
        arrived: queue.SimpleQueue[tuple[Question, Any]] = queue.SimpleQueue()
        try:
            turn = next(plan)
            while True:
                for question in turn.questions:
                    self._begin(question, arrived)
                turn = plan.send(_taken(arrived, turn.wait_s))
        except StopIteration as end:
            found: R = end.value
            return found
        except StrataError as error:
            return error

    def _begin(self, one: Question, arrived: "queue.SimpleQueue[tuple[Question, Any]]") -> None:
        def answered(call: Any) -> None:
            reply = reply_of(call)
            self._silence.heard(one, reply)
            arrived.put((one, reply))

        call = self._channels.ask(one.method, one.address)
        call.future(one.request, timeout=self._timeout_s).add_done_callback(answered)


class AsyncQuestions(_Questions):
    """See `Questions`."""

    def __init__(self, channels: Channels, silence: Silence, timeout_s: float) -> None:
        super().__init__(channels, silence, timeout_s)
        self._running: set[asyncio.Task[Any]] = set()

    async def ask(self, plan: Plan[R]) -> R | StrataError:
        """See `Questions.ask`."""
        pending: set[asyncio.Task[tuple[Question, Any]]] = set()
        try:
            turn = next(plan)
            while True:
                pending |= {self._begin(question) for question in turn.questions}
                done, pending = await asyncio.wait(
                    pending, timeout=turn.wait_s, return_when=asyncio.FIRST_COMPLETED
                )
                turn = plan.send([one.result() for one in done])
        except StopIteration as end:
            found: R = end.value
            return found
        except StrataError as error:
            return error

    def _begin(self, one: Question) -> "asyncio.Task[tuple[Question, Any]]":
        call = self._channels.ask(one.method, one.address)(one.request, timeout=self._timeout_s)

        async def answered() -> tuple[Question, Any]:
            reply = await _async_reply(call)
            self._silence.heard(one, reply)
            return one, reply

        task = asyncio.ensure_future(answered())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


def _taken(arrived: "queue.SimpleQueue[tuple[Question, Any]]", wait_s: float | None) -> Answers:
    """All that is there, at the latest after `wait_s`."""
    answers: Answers = []
    try:
        answers.append(arrived.get(timeout=wait_s))
        while True:
            answers.append(arrived.get_nowait())
    except queue.Empty:
        return answers


def reply_of(call: Any) -> Any:
    """What became of a call that has ended: the answer, or the StrataError."""
    try:
        return call.result()
    except grpc.FutureCancelledError:
        return cancelled()
    except grpc.RpcError as failure:
        error = stream_error(failure)
        # What gRPC raises is the call itself, and a traceback holds the frames that hold it.
        failure.__traceback__ = None
        return error


async def _async_reply(call: Any) -> Any:
    try:
        return await call
    except grpc.RpcError as failure:
        return stream_error(failure)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return cancelled()  # the call was cancelled, not the task


def cancelled() -> UnavailableError:
    return UnavailableError("the call was cancelled")
