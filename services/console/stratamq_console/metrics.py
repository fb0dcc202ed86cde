"""What Prometheus sees of the console."""

from stratamq.service.metrics import counter, gauge

_PAGES = "Are pages shown in browsers?"

REQUESTS = counter(
    "console_requests", "Requests of browsers, by class of status.", ["status"], asks=_PAGES
)
FAILED = counter(
    "console_failed_requests",
    "Requests that could not be answered: a service is down, or an error of the console.",
    asks=_PAGES,
)
SESSIONS = gauge("console_sessions", "Users who are logged in.", asks=_PAGES)
