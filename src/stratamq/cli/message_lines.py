"""Messages as they come, a line each, in columns that keep to the width of the terminal."""

import sys

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from stratamq.cli.dump_output import show, terminal
from stratamq.cli.dump_rows import Row

HEADINGS = {
    "topic": "topic",
    "queueId": "queue",
    "queueOffset": "offset",
    "storeTimestamp": "time",
    "tag": "tag",
    "keys": "keys",
    "body": "body",
}
_WIDEST = {"topic": 32, "tag": 16, "keys": 32}
_NARROWEST = 6
_BODY_AT_LEAST = 20
_GAP = "  "
_NUMBERS = ("queueId", "queueOffset")


class MessageLines:
    """`at_once`: the first row settles the widths; otherwise the first `LOOK_AHEAD` rows do. A
    number that is wider later widens its column; a text is cut with an ellipsis."""

    LOOK_AHEAD = 100

    def __init__(self, *, several_topics: bool, at_once: bool) -> None:
        self._names = [name for name in HEADINGS if several_topics or name != "topic"]
        self._look_ahead = 1 if at_once else self.LOOK_AHEAD
        self._at_once = at_once
        self._console = terminal()
        self._width = self._console.width
        self._wanted = {name: len(HEADINGS[name]) for name in self._names if name != "body"}
        """Without regard to the terminal's width; a body takes what is left."""
        self._widths: dict[str, int] = {}
        self._waiting: list[dict[str, str]] | None = []

    def row(self, row: Row) -> None:
        cells = {name: show(name, row.get(name)) for name in self._names}
        if self._at_once and self._width != self._console.width:
            self._width = self._console.width
            self._fit()
        if self._waiting is None:
            self._print(cells)
        else:
            self._waiting.append(cells)
            if len(self._waiting) >= self._look_ahead:
                self._begin()

    def flush(self) -> None:
        """Everything so far is on standard output when this returns."""
        if self._waiting:
            self._begin()
        sys.stdout.flush()

    def _begin(self) -> None:
        waiting = self._waiting or []
        self._fit()
        for cells in waiting:
            self._widen(cells)
        headings = {name: HEADINGS[name] for name in self._names}
        self._console.print(Text(self._line(headings), "bold"), soft_wrap=True)
        while waiting:  # what Ctrl-C keeps from being printed still waits
            self._print(waiting[0])
            del waiting[0]
        self._waiting = None

    def _print(self, cells: dict[str, str]) -> None:
        self._widen(cells)
        print(self._line(cells))

    def _widen(self, cells: dict[str, str]) -> None:
        wider = False
        for name, width in self._wanted.items():
            wanted = min(cell_len(cells[name]), _WIDEST.get(name, self._width))
            if wanted > width:
                self._wanted[name] = wanted
                wider = True
        if wider:
            self._fit()

    def _fit(self) -> None:
        """Leave room for the bodies, and give them what the others do not need."""
        widths = self._widths = dict(self._wanted)
        room = self._width - sum(widths.values()) - len(_GAP) * len(widths)
        while room < _BODY_AT_LEAST:
            widest = max((name for name in _WIDEST if name in widths), key=widths.__getitem__)
            if widths[widest] <= _NARROWEST:
                break
            widths[widest] -= 1
            room += 1
        widths["body"] = max(room, 1)

    def _line(self, cells: dict[str, str]) -> str:
        padded = [
            self._cell(name, cells[name], self._widths[name], name in _NUMBERS)
            for name in self._names
        ]
        return cut(_GAP.join(padded), self._width).rstrip()

    @staticmethod
    def _cell(name: str, text: str, width: int, right: bool) -> str:
        text = cut(text, width)
        filling = " " * (width - cell_len(text))
        return filling + text if right else text + filling


def cut(text: str, width: int) -> str:
    """At most `width` columns of a terminal; an ellipsis stands for what is left out."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""
