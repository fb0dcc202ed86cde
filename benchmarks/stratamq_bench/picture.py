"""Draws the JSON of a run: how far each case is from its bar, and where the CPU goes.

Needs the `bench` extra. The same JSON gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from stratamq_bench.page import value_of

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

MET, MISSED = "#2a9d5c", "#c8553d"
COLOURS = {
    "client": "#8d99ae",
    "consumer": "#b8c0d0",
    "commitlog": "#1d3557",
    "log": "#1d3557",
    "dispatcher": "#2a9d8f",
    "index": "#e9a23b",
}
STREAMED = ("append-async", "append-sync", "follow-both", "follow-consumer", "follow-small")

Record = Mapping[str, Any]


def draw(document: Record, target: Path) -> None:
    """An SVG of two panels."""
    settings = {"svg.hashsalt": "stratamq", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(settings):
        cases = document["cases"]
        rows = [(case["case"], bar, _margin(case, bar)) for case in cases for bar in case["bars"]]
        streamed = [case for case in cases if case["case"] in STREAMED]
        figure, (left, right) = plt.subplots(
            2, 1, figsize=(9, 2 + 0.24 * len(rows) + 0.5 * len(streamed)),
            height_ratios=(0.24 * len(rows) + 1, 0.5 * len(streamed) + 1),
            layout="constrained",
        )  # fmt: skip
        machine = document["machine"]
        figure.suptitle(f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}")
        _draw_margins(left, rows)
        _draw_cpu(right, streamed)
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _margin(case: Record, bar: Record) -> float:
    """How many times better than the bar, whichever side it is on."""
    value = value_of(case, bar)
    if bar["side"] == "at least":
        return value / float(bar["limit"])
    return float(bar["limit"]) / max(value, 1e-9)


def _draw_margins(axes: Axes, rows: Sequence[tuple[str, Record, float]]) -> None:
    names = [
        case if bar["measure"] == "ratio" else f"{case}, {bar['measure']}" for case, bar, _ in rows
    ]
    places = range(len(rows))
    margins = [min(margin, 8.0) for _, _, margin in rows]
    colours = [MET if bar["met"] else MISSED for _, bar, _ in rows]
    axes.barh(places, margins, color=colours, height=0.7)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlim(0.25, 8.0)
    axes.set_xticks([0.25, 0.5, 1, 2, 4, 8], ["¼", "½", "the bar", "2 ×", "4 ×", "8 ×"])
    axes.minorticks_off()
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_title("How many times better than its bar", loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_cpu(axes: Axes, cases: Sequence[Record]) -> None:
    rows = []
    for case in cases:
        rows.append((case["case"], case["cpu_us_per_message"]))
        rows.append((case["floor"]["name"], case["floor"]["cpu_us_per_message"]))
    labelled = set()
    for place, (_, by_process) in enumerate(rows):
        left = 0.0
        for process, cpu_us in by_process.items():
            label = process if process not in labelled and process != "log" else None
            labelled.add(process)
            colour = COLOURS.get(process, "#999999")
            axes.barh(place, cpu_us, left=left, color=colour, height=0.7, label=label)
            if cpu_us > 0.5:
                axes.text(left + cpu_us / 2, place, f"{cpu_us:.1f}", ha="center", va="center",
                          color="white", fontsize=7)  # fmt: skip
            left += cpu_us
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_title("CPU for one message, µs, each case above its floor", loc="left")
    axes.legend(loc="lower right", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
