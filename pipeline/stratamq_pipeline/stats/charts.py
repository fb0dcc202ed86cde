"""Charts as SVG text, to stand in a page by themselves."""

import io
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

COLOURS = ("#2a6f97", "#e07a1f", "#3c8d53", "#b5446e", "#6d5aa6", "#8a6d3b", "#777777")
"""Distinct to readers who see no red or green, too; the last is for all other topics."""
NAMED = len(COLOURS) - 1
OTHERS = "others"
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stratamq",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "text.parse_math": False,
}
_PREAMBLE = re.compile(r"^.*?(?=<svg)", re.DOTALL)

Series = Mapping[str, Sequence[float]]


def over_time(starts_ms: Sequence[int], series: Series, bucket_ms: int, unit: str) -> str:
    """Stacked bars, one for each stretch of time; silence is a bar of no height."""
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(2.6)
        moments = [datetime.fromtimestamp(start / 1000, UTC) for start in starts_ms]
        days = bucket_ms / 86_400_000
        bottom = [0.0] * len(moments)
        for colour, (name, values) in zip(COLOURS, series.items(), strict=False):
            axes.bar(
                moments,  # type: ignore[arg-type]
                values,
                width=days * 0.9,
                bottom=bottom,
                align="edge",
                color=colour,
                label=name,
            )
            bottom = [low + value for low, value in zip(bottom, values, strict=True)]
        axes.set_ylabel(unit)
        locator = AutoDateLocator(tz=UTC)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
        if len(series) > 1:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        return _svg(figure)


def bars(names: Sequence[str], values: Sequence[float], unit: str) -> str:
    """Lying bars, the first on top."""
    with matplotlib.rc_context({**_STYLE, "axes.grid.axis": "x"}):
        figure, axes = _figure(0.7 + 0.24 * max(1, len(names)))
        places = range(len(names))
        axes.barh(places, values, color=COLOURS[0], height=0.7)
        axes.set_yticks(places, [name if len(name) <= 40 else f"{name[:39]}…" for name in names])
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        return _svg(figure)


def columns(names: Sequence[str], values: Sequence[float], unit: str) -> str:
    """Standing bars, in the order that is given: a histogram."""
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(2.4)
        places = range(len(names))
        axes.bar(places, values, color=COLOURS[0], width=0.9)
        axes.set_xticks(places, list(names))
        axes.set_ylabel(unit)
        return _svg(figure)


def _figure(height_inches: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(9, height_inches), layout="constrained")
    return figure, figure.subplots()


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    with warnings.catch_warnings():
        # Text stays text: whatever the fonts here lack, the reader's browser has.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    return _PREAMBLE.sub("", text.getvalue())
