"""The report of `stats` as one HTML file that needs nothing beside itself."""

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from stratamq_pipeline.stats import charts
from stratamq_pipeline.stats.figures import Figures

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
p.where { color: #666; margin-top: .2rem; overflow-wrap: anywhere; }
svg { max-width: 100%; height: auto; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem .2rem 0; text-align: left; border-bottom: 1px solid #ddd; }
td.number, th.number { text-align: right; }
"""


def page(figures: Figures) -> str:
    """The whole file."""
    total = sum(row["messages"] for row in figures.topics)
    size = sum(row["bytes"] for row in figures.topics)
    parts = [
        f"<h1>{total:,} messages in {len(figures.topics):,} topics</h1>",
        f'<p class="where">{_text(figures.log)}, log offsets {figures.begin:,} to '
        f"{figures.end:,}; {_bytes(size)} in frames</p>",
    ]
    if total:
        parts += list(_charts(figures))
    parts += list(_tables(figures))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>StrataMQ: {_text(figures.log)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _charts(figures: Figures) -> Iterable[str]:
    starts, messages, sizes = _series(figures)
    bucket = _duration(figures.bucket_ms)
    yield _section(
        f"Messages every {bucket}",
        charts.over_time(starts, messages, figures.bucket_ms, "messages"),
    )
    yield _section(f"MiB every {bucket}", charts.over_time(starts, sizes, figures.bucket_ms, "MiB"))
    by_size: dict[int, int] = {}
    for row in figures.sizes:
        by_size[row["upTo"]] = by_size.get(row["upTo"], 0) + row["messages"]
    upto = sorted(by_size)
    yield _section(
        "Sizes of frames, up to",
        charts.columns([_bytes(one) for one in upto], [by_size[one] for one in upto], "messages"),
    )
    if figures.tags:
        names = [f"{row['topic']} · {row['tags']}" for row in figures.tags]
        values = [row["messages"] for row in figures.tags]
        yield _section("Most frequent tags", charts.bars(names, values, "messages"))
    names = [row["address"] for row in figures.producers]
    values = [row["messages"] for row in figures.producers]
    yield _section("Producers", charts.bars(names, values, "messages"))


def _series(figures: Figures) -> tuple[list[int], dict[str, list[float]], dict[str, list[float]]]:
    """The largest topics by name, the others together; every stretch of time, silent ones too."""
    names = [row["topic"] for row in figures.topics]
    named = names[: charts.NAMED] if len(names) > charts.NAMED + 1 else names
    times = figures.times
    step = figures.bucket_ms
    first, last = min(row["start"] for row in times), max(row["start"] for row in times)
    starts = list(range(first, last + step, step))
    labels = [*named, *([charts.OTHERS] if len(named) < len(names) else [])]
    messages = {label: [0.0] * len(starts) for label in labels}
    sizes = {label: [0.0] * len(starts) for label in labels}
    for row in times:
        label = row["topic"] if row["topic"] in messages else charts.OTHERS
        place = (row["start"] - first) // step
        messages[label][place] += row["messages"]
        sizes[label][place] += row["bytes"] / (1 << 20)
    return starts, messages, sizes


def _tables(figures: Figures) -> Iterable[str]:
    for title, rows in (
        ("Topics", figures.topics),
        ("Keys in more than one message", figures.keys),
        ("Longest silence of each topic", figures.silences),
        ("Gaps in queue offsets", figures.gaps),
    ):
        yield _section(title, _table(rows) if rows else "<p>none</p>")


def _table(rows: Sequence[dict[str, Any]]) -> str:
    names = list(rows[0])
    numeric = {name for name in names if any(isinstance(row[name], int | float) for row in rows)}
    head = "".join(f"<th{_class(name in numeric)}>{_text(_words(name))}</th>" for name in names)
    lines = [
        "<tr>"
        + "".join(f"<td{_class(name in numeric)}>{_text(_value(row[name]))}</td>" for name in names)
        + "</tr>"
        for row in rows
    ]
    return f'<div class="wide"><table><tr>{head}</tr>\n' + "\n".join(lines) + "</table></div>"


def _section(title: str, content: str) -> str:
    return f"<h2>{_text(title)}</h2>\n{content}"


def _class(numeric: bool) -> str:
    return ' class="number"' if numeric else ""


def _value(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _words(name: str) -> str:
    """`meanDelayMs` as `mean delay ms`."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def _text(text: str) -> str:
    return html.escape(text.encode("utf-8", "replace").decode())


def _bytes(count: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:,.1f} TiB"


def _duration(ms: int) -> str:
    for unit, length in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if ms % length == 0:
            count = ms // length
            return unit if count == 1 else f"{count} {unit}s"
    return f"{ms / 1000:g} s"
