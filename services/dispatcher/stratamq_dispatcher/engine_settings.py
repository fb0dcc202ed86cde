"""What the engine takes from the service's settings."""

from collections.abc import Sequence
from dataclasses import dataclass

from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The engine settings of one broker."""

    queue_file_bytes: int = 6_000_000
    flush_interval_ms: int = 1000
    flush_bytes: int = 8 << 20
    max_unwritten_bytes: int = 32 << 20
    flush_window_bytes: int = 64 << 10
    max_open_files: int = 512
    step_messages: int = 1024
    delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS
