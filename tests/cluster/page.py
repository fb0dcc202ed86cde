"""The commands of docs/kubernetes.md, for a namespace of a test."""

from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")


def commands(heading: str, **there: str) -> list[str]:
    """The lines of the shell block below a heading; `there`: a word of the page, and ours."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    block = section.partition("\n```sh\n")[2].partition("\n```\n")[0]
    for word, ours in there.items():
        assert word in block, f"{heading} has no {word}"
        block = block.replace(word, ours)
    return block.splitlines()
