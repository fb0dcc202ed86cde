"""Send spans to a collector by OTLP over HTTP: OpenTelemetry's exporter on its own thread, behind a
queue of `MAX_WAITING` spans from which the oldest are dropped.

HTTP, because gRPC's asyncio and its threads would share one poller in the process. An unreachable
collector costs the service only that thread's attempts, one warning, and the spans.
"""

import logging
from collections.abc import Sequence
from importlib.metadata import version

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from stratamq.service.recorder import SPANS_ENDED, SPANS_SENT
from stratamq.service.spans import SpanRecorder

log = logging.getLogger(__name__)

MAX_WAITING = 2_048
SPANS_A_REQUEST = 256
EVERY_MS = 1_000
ANSWER_S = 3.0


def otlp_recorder(endpoint: str, sample_ratio: float, room: str) -> "OtlpRecorder":
    # It writes a line for each attempt and each dropped span; `_Told` says what matters.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    session = requests.Session()
    session.trust_env = False  # a proxy of the environment is for the web
    exporter = _Told(endpoint, OTLPSpanExporter(endpoint, timeout=ANSWER_S, session=session))
    return OtlpRecorder(room, exporter, sample_ratio)


class OtlpRecorder(SpanRecorder):
    def __init__(self, room: str, exporter: "_Told", sample_ratio: float) -> None:
        processor = _Counted(
            exporter,
            max_queue_size=MAX_WAITING,
            schedule_delay_millis=EVERY_MS,
            max_export_batch_size=SPANS_A_REQUEST,
        )
        super().__init__(room, version("stratamq"), processor, sample_ratio)
        self._exporter = exporter

    def close(self) -> None:
        self._exporter.closing()
        super().close()


class _Counted(BatchSpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        SPANS_ENDED.inc()
        super().on_end(span)


class _Told(SpanExporter):
    """Says once that the collector takes nothing, and once that it does again."""

    def __init__(self, endpoint: str, exporter: SpanExporter) -> None:
        self._endpoint = endpoint
        self._exporter = exporter
        self._failing = False
        self._closing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._closing and self._failing:
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        failed = result is not SpanExportResult.SUCCESS
        if not failed:
            SPANS_SENT.inc(len(spans))
        if failed != self._failing:
            self._failing = failed
            if failed:
                log.warning(
                    "traces not accepted by the collector", extra={"endpoint": self._endpoint}
                )
            else:
                log.info(
                    "traces accepted by the collector again", extra={"endpoint": self._endpoint}
                )
        return result

    def closing(self) -> None:
        """What the collector does not take now is lost."""
        self._closing = True
        if self._failing:
            self._exporter.shutdown()  # ends a pause between two attempts

    def shutdown(self) -> None:
        if not (self._closing and self._failing):
            self._exporter.shutdown()
