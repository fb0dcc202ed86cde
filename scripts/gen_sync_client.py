"""Generate `src/stratamq/client/_sync` from `_async`, or with --check say what differs.

    async def, async with, async for    def, with, for
    await x, Awaitable[X]               x, X
    AsyncName, __anext__, …             Name, __next__, …
    a statement with `# async only`     nothing, its block neither

In comments and documentation `WORDS` are replaced as well. What really differs between threads and
tasks is in `client/primitives.py` and `client/connections.py`, written by hand.
"""

import argparse
import io
import re
import subprocess
import sys
import tempfile
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLIENT = Path("src/stratamq/client")
RUFF = Path(sys.executable).with_name("ruff")

HEADER = "# Generated from _async/{name} by scripts/gen_sync_client.py (`make client`).\n"
ASYNC_ONLY = "# async only"

NAMES = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_async": "_sync",
    "aclosing": "closing",
    "connect_async": "connect",
    "StopAsyncIteration": "StopIteration",
}
WORDS = (
    (r"The asyncio client, of which .* is generated\.", "The synchronous client, generated."),
    (r"\b([Aa])n asyncio client", r"\1 client"),
    (r"The asyncio client\. Of one event loop;", "The synchronous client. Thread-safe;"),
    (r"of one event loop", "thread-safe"),
    (r"\basync (?=with|for)", ""),
    (r"\btask(?=s?\b)", "thread"),
    (r"StopAsyncIteration", "StopIteration"),
    (r"\bAsync(?=[A-Z])", ""),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail on differences")
    arguments = parser.parse_args()
    target = ROOT / CLIENT / "_sync"
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary)
        for source in sorted((ROOT / CLIENT / "_async").glob("*.py")):
            text = HEADER.format(name=source.name) + synchronous(source.read_text())
            (fresh / source.name).write_text(text)
        lay_out(fresh)
        names = {path.name for where in (fresh, target) for path in where.glob("*.py")}
        changed = sorted(n for n in names if content(fresh / n) != content(target / n))
        if arguments.check:
            for name in changed:
                print(
                    f"gen_sync_client: {CLIENT}/_sync/{name} is not what _async gives",
                    file=sys.stderr,
                )
            if changed:
                print("gen_sync_client: run `make client`, commit the result", file=sys.stderr)
            return 1 if changed else 0
        target.mkdir(exist_ok=True)
        for name in changed:
            data = content(fresh / name)
            if data is None:
                (target / name).unlink()
            else:
                (target / name).write_bytes(data)
    print(f"gen_sync_client: {len(changed)} files changed")
    return 0


def synchronous(source: str) -> str:
    """The synchronous twin of a module, not yet laid out."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    edits: list[tuple[int, int, str]] = []
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, following in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        begin = starts[token.start[0] - 1] + token.start[1]
        end = starts[token.end[0] - 1] + token.end[1]
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            edits.append((begin, starts[following.start[0] - 1] + following.start[1], ""))
        elif token.string == "Awaitable" and following.string == "[":
            depth, at = 1, tokens.index(following)
            while depth:
                at += 1
                depth += {"[": 1, "]": -1}.get(tokens[at].string, 0)
            last = starts[tokens[at].start[0] - 1] + tokens[at].start[1]
            edits += [(begin, starts[following.end[0] - 1] + following.end[1], "")]
            edits += [(last, last + 1, "")]
        elif token.type == tokenize.NAME:
            name = NAMES.get(token.string) or re.sub(r"^(_?)Async(?=[A-Z])", r"\1", token.string)
            edits.append((begin, end, name))
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            text = token.string
            for pattern, replacement in WORDS:
                text = re.sub(pattern, replacement, text)
            edits.append((begin, end, text))
    edits += [(starts[first], starts[last], "") for first, last in marked_statements(tokens, lines)]
    return apply(source, edits)


def marked_statements(tokens: list[tokenize.TokenInfo], lines: list[str]) -> list[tuple[int, int]]:
    """The lines [first, last) of statements that are marked `# async only`, with their blocks."""
    found = []
    first = None
    for token in tokens:
        if token.type in (tokenize.NEWLINE, tokenize.NL):
            first = None if token.type == tokenize.NEWLINE else first
        elif token.type == tokenize.COMMENT and token.string == ASYNC_ONLY and first is not None:
            depth = len(lines[first]) - len(lines[first].lstrip())
            last = token.start[0]
            while last < len(lines) and (
                not lines[last].strip() or len(lines[last]) - len(lines[last].lstrip()) > depth
            ):
                last += 1
            found.append((first, last))
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT):
            first = token.start[0] - 1 if first is None else first
    return found


def apply(source: str, edits: list[tuple[int, int, str]]) -> str:
    """The source with every edit that no larger one covers."""
    pieces, position = [], 0
    for begin, end, text in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
        if begin >= position:
            pieces += [source[position:begin], text]
            position = end
    return "".join([*pieces, source[position:]])


def lay_out(folder: Path) -> None:
    """Format the folder like the rest of the project: sort imports and remove unused ones."""
    for command in (
        ["check", "--quiet", "--fix", "--select", "I,F401,UP"],
        ["format", "--quiet"],
    ):
        first_party = "lint.isort.known-first-party=['stratamq']"
        options = ["--config", ROOT / "pyproject.toml", "--config", first_party, "--no-cache"]
        subprocess.run([RUFF, *command, *options, folder], check=True)


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
