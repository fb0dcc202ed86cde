"""The little Markdown that generated documentation needs."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def number(value: float) -> str:
    """Format a number as in TOML."""
    return f"{value:_}"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
