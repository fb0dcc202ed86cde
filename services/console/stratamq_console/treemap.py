"""Shares as rectangles to scale: a squarified treemap (Bruls, Huizing, van Wijk, 2000) as SVG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 1000, 340
TINTS = 5
_LETTER_WIDTH = 7.2
_LINE = 17
_MARGIN = 7


@dataclass(frozen=True, slots=True)
class Tile:
    """One share. `value` decides its area, `text` says how much it is, `link` leads to it."""

    name: str
    value: float
    text: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of the picture."""

    x: float
    y: float
    width: float
    height: float


def treemap(title: str, tiles: Sequence[Tile]) -> Markup:
    """The largest first. Nothing for a tile without a value."""
    shown = sorted((one for one in tiles if one.value > 0), key=lambda one: -one.value)
    boxes = squarified([one.value for one in shown], Box(0, 0, WIDTH, HEIGHT))
    parts = [_tile(*one) for one in zip(range(len(shown)), shown, boxes, strict=False)]
    return Markup(
        '<svg class="map" role="group" viewBox="0 0 {} {}" aria-label="{}">{}</svg>'
    ).format(WIDTH, HEIGHT, title, Markup("").join(parts))


def squarified(values: Sequence[float], box: Box) -> Iterator[Box]:
    """One rectangle for each value, whose areas are to each other as the values are; rows are
    filled along the shorter side for as long as that makes their rectangles squarer."""
    begin, left = 0, sum(values)
    while begin < len(values):
        side = min(box.width, box.height)
        scale = box.width * box.height / left if left else 0.0
        end = begin + 1
        row = values[begin] * scale
        while end < len(values):
            wider = row + values[end] * scale
            first = values[begin] * scale
            if _worst(first, values[end] * scale, wider, side) > _worst(
                first, values[end - 1] * scale, row, side
            ):
                break
            row, end = wider, end + 1
        depth = row / side if side else 0.0
        at = 0.0
        for value in values[begin:end]:
            length = value * scale / depth if depth else 0.0
            if box.width >= box.height:
                yield Box(box.x, box.y + at, depth, length)
            else:
                yield Box(box.x + at, box.y, length, depth)
            at += length
        if box.width >= box.height:
            box = Box(box.x + depth, box.y, max(0.0, box.width - depth), box.height)
        else:
            box = Box(box.x, box.y + depth, box.width, max(0.0, box.height - depth))
        left -= sum(values[begin:end])
        begin = end


def _worst(largest: float, smallest: float, row: float, side: float) -> float:
    """The ratio of the sides of the least square rectangle of a row."""
    if not row or not side or not smallest:
        return float("inf")
    return max(side**2 * largest / row**2, row**2 / (side**2 * smallest))


def _tile(number: int, tile: Tile, box: Box) -> Markup:
    letters = int((box.width - 2 * _MARGIN) / _LETTER_WIDTH)
    texts = []
    for line, text in enumerate((tile.name, tile.text), 1):
        bottom = _MARGIN + line * _LINE
        if letters >= 4 and bottom < box.height:
            cut = text if len(text) <= letters else text[: letters - 1] + "…"
            texts.append(
                Markup('<text x="{:.1f}" y="{:.1f}">{}</text>').format(
                    box.x + _MARGIN, box.y + bottom - 4, cut
                )
            )
    drawn = Markup(
        '<g class="tile tint-{}"><title>{}: {}</title>'
        '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>{}</g>'
    ).format(
        number % TINTS,
        tile.name,
        tile.text,
        box.x,
        box.y,
        box.width,
        box.height,
        Markup("").join(texts),
    )
    if not tile.link:
        return drawn
    label = f"{tile.name}: {tile.text}"
    return Markup('<a href="{}" aria-label="{}">{}</a>').format(tile.link, label, drawn)
