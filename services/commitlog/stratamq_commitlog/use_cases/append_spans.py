"""Spans of appends: the parts of a call that is recorded, and a span for each batch of a producer
that records it. A batch comes with its trace context, since a stream has one for its life."""

from collections.abc import Awaitable, Callable, Sequence

from stratamq.formats.log_state import Role
from stratamq.rpc.request_ids import current
from stratamq.service.recorder import Recorder
from stratamq_commitlog.engine import CommitLog
from stratamq_commitlog.messages import BatchResult, PutResult
from stratamq_commitlog.write.append_times import AppendStages

BATCH = "append batch"

BatchAnswered = Callable[[BatchResult], None]


class AppendSpans:
    """`replicated`: whether appends wait for slaves now."""

    def __init__(
        self, recorder: Recorder, stages: AppendStages, replicated: Callable[[], bool]
    ) -> None:
        self._recorder = recorder
        self._stages = stages
        self._replicated = replicated

    def call(self, answer: Awaitable[list[PutResult]]) -> Awaitable[list[PutResult]]:
        """The answer of the current request's append; its parts are recorded if it is."""
        request = current()
        if request is None or request.span is None:
            return answer
        return self._recorded(answer)

    async def _recorded(self, answer: Awaitable[list[PutResult]]) -> list[PutResult]:
        taken_ns = self._stages.now_ns()
        results = await answer
        self._record(taken_ns, [one.physical_offset for one in results])
        return results

    def _record(self, taken_ns: int, offsets: Sequence[int]) -> None:
        request = current()
        if request is not None and request.span is not None and max(offsets, default=-1) >= 0:
            self._stages.record(request.span, taken_ns, max(offsets), replicated=self._replicated())

    def batch(self, traceparent: str) -> BatchAnswered | None:
        """To be called with the batch's result; None: it is not recorded."""
        span = self._recorder.continued(traceparent, BATCH)
        if span is None:
            return None
        taken_ns = self._stages.now_ns()

        def answered(result: BatchResult) -> None:
            if result.physical_offset >= 0:
                self._stages.record(
                    span, taken_ns, result.physical_offset, replicated=self._replicated()
                )
            span.end(result.error)

        return answered


def append_spans(
    recorder: Recorder | None, stages: AppendStages | None, engine: CommitLog
) -> AppendSpans | None:
    if recorder is None or stages is None:
        return None
    return AppendSpans(recorder, stages, lambda: engine.role is Role.SYNC_MASTER)
