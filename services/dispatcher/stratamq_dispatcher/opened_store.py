"""What a start finds below `consumequeue/` and in the state files, opened as far as they agree."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from stratamq.files.port import Files
from stratamq.formats.delay import DEFAULT_DELAY_LEVELS_MS
from stratamq.formats.queue_unit import QUEUE_UNIT_BYTES
from stratamq.formats.store_paths import COMMIT_LOG
from stratamq_dispatcher.dispatch_state import DispatchState, Ranges, Remembered, StateFile
from stratamq_dispatcher.loading import LoadedQueues, load_queues
from stratamq_dispatcher.passes import Pass
from stratamq_dispatcher.queue_files import OpenFiles
from stratamq_dispatcher.queue_table import QueueTable
from stratamq_dispatcher.queue_writer import QueueWriter
from stratamq_dispatcher.resuming import LogWitness


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the engine takes from the service's settings."""

    queue_file_bytes: int = 6_000_000
    flush_interval_ms: int = 1000
    flush_bytes: int = 8 << 20
    max_unwritten_bytes: int = 32 << 20
    flush_window_bytes: int = 64 << 10
    max_open_files: int = 512
    step_messages: int = 1024
    delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """`trusted`: the pass that continues from the stored state; None: the files do not agree with
    it, and `queues` is to be opened again from `ranges`."""

    queues: QueueTable
    writer: QueueWriter
    ranges: Ranges
    stored: DispatchState | None
    """The content of the state file."""
    trusted: Pass | None
    never_ours: bool
    """There is no state of this service, not even a damaged one."""
    report: Sequence[str]


def open_store(files: Files, settings: EngineSettings, incarnation: int) -> OpenedStore:
    """Read the state files, list and open every queue. Raises StoreRefusedError."""
    state_file = StateFile(files)
    remembered = state_file.load()
    loaded = load_queues(files, settings.queue_file_bytes, remembered.queues)
    open_files = OpenFiles(files, settings.max_open_files // 2)
    queues = QueueTable(files, loaded.geometry, open_files, incarnation)
    # RocketMQ reads the last three files of a queue and takes older ones for full: never more than
    # two may be unfinished at a crash.
    units_per_file = loaded.geometry.units_per_file
    window_units = min(-(-settings.flush_window_bytes // QUEUE_UNIT_BYTES), units_per_file)
    trusted = _open_queues(files, settings, queues, loaded, remembered, window_units)
    writer = QueueWriter(
        files,
        loaded.geometry,
        loaded.ranges,
        state_file,
        remembered.stale,
        listed=remembered.queues is not None and remembered.queues.ranges == loaded.ranges,
        max_open_files=settings.max_open_files - settings.max_open_files // 2,
        window_units=window_units,
    )
    report = (*remembered.report, *loaded.report)
    ranges, never_ours = loaded.ranges, remembered.never_ours
    return OpenedStore(queues, writer, ranges, remembered.state, trusted, never_ours, report)


def _open_queues(
    files: Files,
    settings: EngineSettings,
    queues: QueueTable,
    loaded: LoadedQueues,
    remembered: Remembered,
    window_units: int,
) -> Pass | None:
    """Open the queues at the stored position; None when the files do not agree with it."""
    state = remembered.state
    if state is None or loaded.damaged:
        return None
    if state.complete:
        erase = 0 if state.clean else window_units
        agree = queues.open_trusted(loaded.ranges, remembered.queues, state.position, erase)
        return Pass.CHECKED if agree else None
    if not state.position:
        return None
    with closing(LogWitness(files, COMMIT_LOG, tuple(settings.delay_levels_ms))) as log:
        agree = queues.open_rebuilt(loaded.ranges, state.position, log)
    return Pass.COMPARED if agree else None
