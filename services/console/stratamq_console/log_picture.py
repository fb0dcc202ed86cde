"""The log to scale: its segments by age and by what becomes of them, and beneath them how far
queues, index, tier and slaves have come. One offset of the log is one place from left to right."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stratamq.client.storage_map import GOES, HELD, KEPT, STAYS, MappedSegment, StorageMap
from stratamq_console.showing import plain_moment, size, span

WIDTH = 1000
MAX_CELLS = 240
"""A log of more segments is drawn with several in a cell."""
AGES_H = (1, 6, 24, 72)
"""Hours: what is younger than the first is of age 0, and so on."""
_LEFT, _TOP = 96, 26
_PLOT = WIDTH - _LEFT - 4
_LOG_HEIGHT, _ROW_HEIGHT, _GAP = 74, 13, 9
_URGENCY = {STAYS: 0, KEPT: 1, HELD: 2, GOES: 3}
_WORDS = {GOES: "goes next", HELD: "held back", KEPT: "the oldest that stays", STAYS: ""}


@dataclass(frozen=True, slots=True)
class Cell:
    """Neighbouring segments that are drawn as one."""

    start: int
    end: int
    segments: int
    used_bytes: int
    newest_ms: int | None
    fate: str
    reason: str
    verified: bool
    tiered: bool
    damaged: bool


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """A row beneath the log: bars from one offset to another."""

    name: str
    kind: str
    bars: tuple[tuple[int, int, str], ...]


def log_picture(found: StorageMap) -> Markup:
    """Width stands for offsets of the log, of which there is at least one segment."""
    cells = cells_of(found.mapped())
    scale = _Scale(cells[0].start, max(cells[-1].end, cells[0].start + 1))
    now_ms = found.segments.at_ms
    parts = [_label("Log", _TOP + _LOG_HEIGHT / 2)]
    parts += [_cell(one, scale, now_ms) for one in cells]
    parts += list(_marks(cells, scale))
    y = _TOP + _LOG_HEIGHT + _GAP
    for reach in reaches(found):
        parts.append(_label(reach.name, y + _ROW_HEIGHT / 2))
        parts += [_bar(reach.kind, one, scale, y) for one in reach.bars]
        y += _ROW_HEIGHT + _GAP
    parts += list(_axis(scale, y))
    return Markup(
        '<svg class="map" role="img" viewBox="0 0 {} {}" aria-label="The log to scale: {} in {} '
        'segments; the tables below say the same">{}</svg>'
    ).format(
        WIDTH,
        y + 18,
        size(found.size_bytes),
        sum(one.segments for one in cells),
        Markup("").join(parts),
    )


def cells_of(segments: Sequence[MappedSegment]) -> list[Cell]:
    """At most MAX_CELLS; of several segments a cell shows the most urgent fate, the newest message,
    and what holds for all of them; damage of any."""
    each = -(-len(segments) // MAX_CELLS)
    return [_merged(segments[at : at + each]) for at in range(0, len(segments), each)]


def reaches(found: StorageMap) -> Iterator[ProgressRow]:
    """What is drawn beneath the log, as far as it is known."""
    low = found.log.minimum_offset
    scrub = found.log.scrub
    if scrub.position_offset > low:
        yield ProgressRow(
            "Verified", "verified", ((low, scrub.position_offset, "checksums verified"),)
        )
    for one in found.log.followers:
        if one.name == "dispatcher":
            text = f"consume queues, up to {one.durable_offset}"
            yield ProgressRow("Queues", "queues", ((low, one.durable_offset, text),))
    if found.index_files:
        yield ProgressRow(
            "Index",
            "index",
            tuple(
                (one.start_offset, one.end_offset, f"{one.name}: {one.items} keys")
                for one in found.index_files[-MAX_CELLS:]
            ),
        )
    if found.tier is not None:
        upto = found.tier.committed_offset
        yield ProgressRow("Tier", "tier", ((low, upto, f"in {found.tier.storage} below {upto}"),))
    for slave in found.log.replicas[:8]:
        name = slave.member or slave.address
        text = f"{name} has acknowledged {slave.acknowledged_offset}"
        yield ProgressRow(name[:12], "slave", ((low, slave.acknowledged_offset, text),))


@dataclass(frozen=True, slots=True)
class _Scale:
    low: int
    high: int

    def x(self, offset: int) -> float:
        inside = min(max(offset, self.low), self.high)
        return _LEFT + _PLOT * (inside - self.low) / (self.high - self.low)


def _merged(some: Sequence[MappedSegment]) -> Cell:
    first = max(some, key=lambda one: _URGENCY[one.fate])
    known = [one.segment.newest_ms for one in some if one.segment.newest_ms is not None]
    return Cell(
        some[0].segment.start_offset,
        some[-1].segment.end_offset,
        len(some),
        sum(one.used_bytes for one in some),
        max(known, default=None),
        first.fate,
        first.reason,
        all(one.verified for one in some),
        all(one.tiered for one in some),
        any(one.damaged for one in some),
    )


def age_class(newest_ms: int | None, now_ms: int) -> int:
    """0 for the youngest, and for a segment that is being written."""
    if newest_ms is None:
        return 0
    hours = (now_ms - newest_ms) / 3_600_000
    return next((number for number, most in enumerate(AGES_H) if hours < most), len(AGES_H))


def _cell(cell: Cell, scale: _Scale, now_ms: int) -> Markup:
    x, end = scale.x(cell.start), scale.x(cell.end)
    width = max(0.5, end - x - min(1.5, (end - x) / 4))
    share = min(1.0, cell.used_bytes / max(1, cell.end - cell.start))
    height = _LOG_HEIGHT * share
    return Markup(
        '<g class="cell"><title>{}</title>'
        '<rect class="room" x="{:.2f}" y="{}" width="{:.2f}" height="{}"/>'
        '<rect class="age-{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>{}{}</g>'
    ).format(
        _cell_title(cell, now_ms),
        x,
        _TOP,
        width,
        _LOG_HEIGHT,
        age_class(cell.newest_ms, now_ms),
        x,
        _TOP + _LOG_HEIGHT - height,
        width,
        height,
        _fate(cell, x, width),
        _damage(cell, x, width),
    )


def _cell_title(cell: Cell, now_ms: int) -> str:
    what = "segment" if cell.segments == 1 else f"{cell.segments} segments"
    told = [f"{what} from {cell.start}: {size(cell.used_bytes)}"]
    if cell.newest_ms is not None:
        age = span((now_ms - cell.newest_ms) / 1000)
        told.append(f"newest message {age} old ({plain_moment(cell.newest_ms)})")
    told += [_WORDS[cell.fate], cell.reason]
    told += ["checksums verified"] * cell.verified + ["in the tier"] * cell.tiered
    told += ["DAMAGED"] * cell.damaged
    return "; ".join(filter(None, told))


def _fate(cell: Cell, x: float, width: float) -> Markup:
    if cell.fate not in (GOES, HELD):
        return Markup("")
    return Markup('<rect class="{}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"/>').format(
        cell.fate, x + 1, _TOP + 1, max(0.5, width - 2), _LOG_HEIGHT - 2
    )


def _damage(cell: Cell, x: float, width: float) -> Markup:
    if not cell.damaged:
        return Markup("")
    return Markup('<rect class="damage" x="{:.2f}" y="{}" width="{:.2f}" height="{}"/>').format(
        x, _TOP - 5, max(3.0, width), _LOG_HEIGHT + 10
    )


def _marks(cells: Sequence[Cell], scale: _Scale) -> Iterator[Markup]:
    """A word above the first cell of each fate."""
    for fate in (GOES, HELD):
        first = next((one for one in cells if one.fate == fate), None)
        if first is not None:
            yield Markup('<text class="mark-{}" x="{:.1f}" y="{}">▼ {}</text>').format(
                fate, scale.x(first.start), _TOP - 9, _WORDS[fate]
            )


def _bar(kind: str, bar: tuple[int, int, str], scale: _Scale, y: float) -> Markup:
    start, end, text = bar
    x = scale.x(start)
    return Markup(
        '<rect class="bar {}" x="{:.2f}" y="{}" width="{:.2f}" height="{}"><title>{}</title></rect>'
    ).format(kind, x, y, max(0.8, scale.x(end) - x - 0.6), _ROW_HEIGHT, text)


def _label(text: str, y: float) -> Markup:
    return Markup('<text class="row" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
        _LEFT - 8, y + 4, text
    )


def _axis(scale: _Scale, y: float) -> Iterator[Markup]:
    for part in range(5):
        offset = scale.low + (scale.high - scale.low) * part // 4
        anchor = "start" if not part else "end" if part == 4 else "middle"
        yield Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
            scale.x(offset), y + 10, anchor, f"offset {offset:,}".replace(",", "\u202f")
        )
