"""Charts as SVG, made here and put into the page: lines over time, with a scale and a caption.

Colours are classes of the style sheet, so that a chart is light or dark as its page is, and no
style stands in the page, which the console's policy forbids.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from stratamq_console.history import RatePoint

WIDTH, HEIGHT = 640, 160
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 8, 10, 22
_PLOT_WIDTH, _PLOT_HEIGHT = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
_STEPS = (1.0, 2.0, 5.0, 10.0)
_TICKS = 2
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One line of a chart; `kind` is its class in the style sheet."""

    name: str
    kind: str
    rates: Sequence[RatePoint]


def lines_over_time(
    title: str, lines: Sequence[ChartLine], end_ms: int, span_s: int, show: Callable[[float], str]
) -> Markup:
    """The last `span_s` up to `end_ms`. Where a value is not known, a line has a gap. `show` writes
    the values of the scale."""
    known = [one.per_second for line in lines for one in line.rates if one.per_second is not None]
    top = nice_limit(max(known, default=0.0))
    begin_ms = end_ms - span_s * 1000

    def x(at_ms: int) -> float:
        return _LEFT + _PLOT_WIDTH * (at_ms - begin_ms) / (end_ms - begin_ms)

    def y(value: float) -> float:
        return _TOP + _PLOT_HEIGHT * (1 - value / top)

    parts = [_scale(top, y, show), _times(span_s, x, begin_ms)]
    for line in lines:
        for points in _runs(line.rates, begin_ms):
            path = " ".join(f"{x(one.at_ms):.1f},{y(one.per_second or 0):.1f}" for one in points)
            path = f"{path} {path}" if len(points) == 1 else path  # a dot
            parts.append(Markup('<polyline class="line {}" points="{}"/>').format(line.kind, path))
    latest = "; ".join(f"{one.name}: {_latest(one, show)}" for one in lines)
    return Markup(
        '<svg class="chart" role="img" viewBox="0 0 {} {}" aria-label="{}, the last {} minutes; '
        'now {}">{}</svg>'
    ).format(WIDTH, HEIGHT, title, span_s // 60, latest, Markup("").join(parts))


def nice_limit(largest: float) -> float:
    """1, 2, 5 or 10 times a power of ten: the smallest one that is not below `largest`."""
    step = 1.0
    while step * _STEPS[-1] < largest:
        step *= 10
    return next((step * one for one in _STEPS if step * one >= largest), step * _STEPS[-1])


def _scale(top: float, y: Callable[[float], float], show: Callable[[float], str]) -> Markup:
    found = Markup("")
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        found += Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
            '<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
        ).format(_LEFT, WIDTH - _RIGHT, y(value), y(value), _LEFT - 6, y(value) + 4, show(value))
    return found


def _times(span_s: int, x: Callable[[int], float], begin_ms: int) -> Markup:
    found, minutes = Markup(""), span_s // 60
    for passed in range(0, minutes + 1, max(1, minutes // 4)):
        left = minutes - passed
        anchor = "start" if not passed else "end" if not left else "middle"
        found += Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="{}">{}</text>').format(
            x(begin_ms + passed * _MINUTE_MS), HEIGHT - 5, anchor, f"−{left} min" if left else "now"
        )
    return found


def _runs(rates: Sequence[RatePoint], begin_ms: int) -> list[list[RatePoint]]:
    """Stretches of values that are known and not too old."""
    runs: list[list[RatePoint]] = [[]]
    for one in rates:
        if one.per_second is None:
            runs.append([])
        elif one.at_ms >= begin_ms:
            runs[-1].append(one)
    return [run for run in runs if run]


def _latest(line: ChartLine, show: Callable[[float], str]) -> str:
    value = line.rates[-1].per_second if line.rates else None
    return "not known" if value is None else show(value)
