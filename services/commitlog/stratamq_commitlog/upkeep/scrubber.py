"""The scrubber: reads what no client reads, and reports what the disk has damaged.

Segments that are full and durable are read from the oldest to the newest, within a budget of bytes
per second, by a worker of its own; each frame is verified as a read of it would be. Pages that were
not cached before are let go of again. A pass begins when `scrub_interval_ms` have passed since the
last one began, and continues over restarts. Damage is counted and listed; nothing is repaired here:
a replica or a backup has to do it.
"""

import logging
from bisect import bisect_left
from dataclasses import dataclass, replace

from stratamq.files.metadata import MetadataFile
from stratamq.files.port import Clock, File, Files, Worker
from stratamq.formats.file_names import offset_name
from stratamq.formats.log_damage import HEAD_BYTES, Damage, examine, next_frame
from stratamq.formats.log_state import ScrubState
from stratamq_commitlog.config import CommitLogConfig
from stratamq_commitlog.log_state import LogOffsets
from stratamq_commitlog.recovery.own_state import SCRUB_PATH
from stratamq_commitlog.write.segment_set import DIRECTORY, SegmentSet

log = logging.getLogger(__name__)

PIECE_BYTES = 256 << 10
"""Read and verified at once: short enough that the event loop does not wait for the interpreter."""
DAMAGE_LISTED = 1_000
"""The first so many stretches are kept."""


@dataclass(slots=True)
class _Finding:
    """What one task learnt: log offsets [start, end) have been looked at."""

    start: int
    end: int
    read_bytes: int = 0
    frames: int = 0
    damage: tuple[Damage, ...] = ()


class LogScrubber:
    """`load` first; then `tick` often. Single-threaded, but for the tasks given to the worker."""

    def __init__(
        self,
        files: Files,
        worker: Worker,
        segments: SegmentSet,
        offsets: LogOffsets,
        config: CommitLogConfig,
        clock: Clock,
    ) -> None:
        self.state = ScrubState()
        self.read_bytes = 0
        """Since the start, for metrics."""
        self.verified_frames = 0
        self._files = files
        self._worker = worker
        self._segments = segments
        self._offsets = offsets
        self._rate = config.scrub_bytes_per_second
        self._interval_ms = config.scrub_interval_ms
        self._clock = clock
        self._metadata = MetadataFile(files, SCRUB_PATH)
        self._reading: tuple[int, File] | None = None
        self._busy = False
        self._stopped = False
        self._unsaved = False
        self._budget = 0.0
        self._last_ns = clock.monotonic_ns()

    def load(self) -> list[str]:
        """Blocking: continue where the last process stopped. Unreadable state is reported, and the
        scrub starts over."""
        data, offsets = self._metadata.load(), self._offsets
        self.state = _decode(data or {}, offsets.minimum, offsets.appended)
        return list(self._metadata.found.faults)

    def tick(self) -> None:
        """Time has passed; perhaps read a little."""
        now = self._clock.monotonic_ns()
        earned = self._rate * (now - self._last_ns) / 1e9
        self._budget = min(float(max(self._rate, PIECE_BYTES)), self._budget + earned)
        self._last_ns = now
        if self._busy or self._stopped or not self._rate:
            return
        if self._unsaved:
            self._save()
        elif self.state.passing or self._is_due():
            self._go_on()

    def stop(self) -> None:
        """Begin nothing more on the worker."""
        self._stopped = True

    def close(self) -> None:
        """Let go of the file it reads. No task may be running."""
        if self._reading is not None:
            self._reading[1].close()
            self._reading = None

    # --- one pass ---

    def _is_due(self) -> bool:
        """Begin a pass if it is time: a clock that went back makes none wait for longer."""
        state, now = self.state, self._clock.wall_ms()
        if state.pass_began_ms and 0 <= now - state.pass_began_ms < self._interval_ms:
            return False
        self.state = replace(state, passing=True, position_offset=0, pass_began_ms=now)
        return True

    def _go_on(self) -> None:
        base = self._next_segment()
        if base is None:
            self._end_pass()
        elif self._budget >= PIECE_BYTES:
            self._budget -= PIECE_BYTES
            self._busy = True
            start = max(base, self.state.position_offset)

            def looked(finding: _Finding | None, error: BaseException | None) -> None:
                self._busy = False
                if error is not None and not isinstance(error, OSError):
                    raise error
                if base not in self._segments.offsets:
                    self.close()  # it was deleted meanwhile
                else:
                    self._take(finding or self._unreadable(base, start, error))
                self.tick()

            self._worker.submit(lambda: self._look(base, start), looked)

    def _end_pass(self) -> None:
        state = self.state
        self.close()
        self.state = replace(
            state, passing=False, pass_ended_ms=self._clock.wall_ms(), passes=state.passes + 1
        )
        self._unsaved = True

    def _next_segment(self) -> int | None:
        """The first full, durable segment that this pass has not been through."""
        offsets, size = self._segments.offsets, self._segments.segment_bytes
        index = bisect_left(offsets, self.state.position_offset - size + 1)
        if index >= len(offsets) - 1 or offsets[index] + size > self._offsets.flushed:
            return None
        return offsets[index]

    # --- on the worker ---

    def _look(self, base: int, start: int) -> _Finding:
        """Verify one piece from `start`, where a frame should begin."""
        file, segment_end = self._open(base), base + self._segments.segment_bytes
        length = min(PIECE_BYTES, segment_end - start)
        data = file.read_cold(start - base, length)
        looked = examine(data, start, segment_end, self._offsets.sealed_from)
        if looked.needs and not looked.good:
            data = file.read_cold(start - base, looked.needs)
            looked = examine(data, start, segment_end, self._offsets.sealed_from)
        end, reason = start + looked.good, looked.reason
        if looked.needs and not looked.good:
            reason = "length"  # the file is shorter than its segment
        if not reason:
            end = segment_end if looked.at_end else end
            return _Finding(start, end, len(data), looked.frames)
        resumed = self._resume(file, base, end, segment_end)
        damage = Damage(end, resumed, reason)
        return _Finding(start, resumed, len(data), looked.frames, (damage,))

    def _resume(self, file: File, base: int, start: int, segment_end: int) -> int:
        """Where the first frame behind the damage at `start` begins, or the segment's end."""
        position = start
        while position < segment_end:
            length = min(PIECE_BYTES, segment_end - position)
            data = file.read_cold(position - base, length)
            found = next_frame(data, position, segment_end)
            if found is not None:
                return position + found
            if len(data) < PIECE_BYTES:
                break
            position += len(data) - HEAD_BYTES
        return segment_end

    def _open(self, base: int) -> File:
        if self._reading is None or self._reading[0] != base:
            self.close()
            self._reading = base, self._files.open(f"{DIRECTORY}/{offset_name(base)}")
        return self._reading[1]

    # --- back ---

    def _unreadable(self, base: int, start: int, error: OSError | None) -> _Finding:
        """The device refuses a piece: it is passed over."""
        self.close()
        end = min(start - start % PIECE_BYTES + PIECE_BYTES, base + self._segments.segment_bytes)
        log.error("scrub read failed", extra={"offset": start, "error": str(error)})
        return _Finding(start, end, damage=(Damage(start, end, "unreadable"),))

    def _take(self, finding: _Finding) -> None:
        self.read_bytes += finding.read_bytes
        self.verified_frames += finding.frames
        before = self.state.damage
        kept = [
            one
            for one in before
            if one.end > self._segments.minimum and not finding.start <= one.start < finding.end
        ]
        for one in finding.damage:
            if one not in before:
                log.error(
                    "damage found",
                    extra={"offset": one.start, "end": one.end, "reason": one.reason},
                )
        damage = tuple(sorted([*kept, *finding.damage])[:DAMAGE_LISTED])
        ended = finding.end % self._segments.segment_bytes == 0
        self._unsaved |= ended or damage != before
        self.state = replace(self.state, position_offset=finding.end, damage=damage)

    def _save(self) -> None:
        state, self._unsaved, self._busy = self.state, False, True

        def saved(_: None, error: BaseException | None) -> None:
            self._busy = False
            if error is not None and not isinstance(error, OSError):
                raise error
            if error is not None:
                log.error("scrub state not saved", extra={"error": str(error)})
            self.tick()

        self._worker.submit(lambda: self._metadata.store(_encode(state)), saved)


def _encode(state: ScrubState) -> dict[str, object]:
    return {
        "position": state.position_offset,
        "passing": state.passing,
        "pass_began_ms": state.pass_began_ms,
        "pass_ended_ms": state.pass_ended_ms,
        "passes": state.passes,
        "damage": [[one.start, one.end, one.reason] for one in state.damage],
    }


def _decode(data: dict[str, object], minimum: int, end: int) -> ScrubState:
    """What another program or a cut left behind counts only as far as the log reaches."""
    numbers = [data.get(name) for name in ("position", "pass_began_ms", "pass_ended_ms", "passes")]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return ScrubState()
    position, began, ended, passes = (int(number) for number in numbers)  # type: ignore[call-overload]
    listed = data.get("damage")
    damage = [
        Damage(*one)
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, list) and list(map(type, one)) == [int, int, str]
    ]
    kept = tuple(sorted(one for one in damage if one.end > minimum and one.start < end))
    passing = data.get("passing") is True
    return ScrubState(min(position, end), passing, began, ended, passes, kept)
