"""Traces of a service: the settings `[tracing]`.

OpenTelemetry is imported where they switch it on: without `tracing.endpoint` a service needs none.
"""

import dataclasses
from collections.abc import Iterable
from urllib.parse import urlsplit

from stratamq.errors import ConfigurationError
from stratamq.service.config import setting
from stratamq.service.recorder import Recorder

SECTION = "tracing"


@dataclasses.dataclass(frozen=True)
class TracingConfig:
    """OpenTelemetry, of every service of a broker. Needs `pip install 'stratamq[otlp]'`.

    Headers and certificates for the collector: `OTEL_EXPORTER_OTLP_HEADERS`,
    `OTEL_EXPORTER_OTLP_CERTIFICATE` and the others of OpenTelemetry's exporter."""

    endpoint: str = setting(
        "",
        unit="URL",
        doc="URL to which spans are sent by OTLP over HTTP, for example "
        "`http://collector:4318/v1/traces`; empty: none are recorded.",
    )
    sample_ratio: float = setting(
        0.01,
        unit="",
        minimum=0,
        maximum=1,
        doc="Share of calls that are recorded, of those that their callers do not record; calls "
        "that callers record are always recorded. The request ID decides, so that all "
        "services record the same requests.",
    )

    def faults(self) -> Iterable[str]:
        if not self.endpoint:
            return
        try:
            found = urlsplit(self.endpoint)
            complete = found.scheme in ("http", "https") and bool(found.hostname and found.path)
        except ValueError:
            complete = False
        if not complete:
            yield f"endpoint {self.endpoint!r} is no URL like http://collector:4318/v1/traces"


def recorder_of(config: TracingConfig, room: str) -> Recorder | None:
    """None: traces are off. ConfigurationError when OpenTelemetry is not installed."""
    if not config.endpoint:
        return None
    try:
        from stratamq.service.otlp import otlp_recorder
    except ImportError as error:
        missing = f"tracing.endpoint is set and {error.name} is not installed: "
        raise ConfigurationError([f"{missing}pip install 'stratamq[otlp]'"]) from error
    return otlp_recorder(config.endpoint, config.sample_ratio, room)
