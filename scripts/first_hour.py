#!/usr/bin/env python3
"""Type what README.md and docs/coming-from.md show a new user, in a fresh clone, print what comes.

With --check compare it with tests/cli/first_hour.txt: such an hour in an empty Debian 12.
Needs nothing but Python and what README.md asks for; makes `venv` in the clone.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from itertools import filterfalse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.cli import tour  # noqa: E402

TRANSCRIPT = ROOT / "tests" / "cli" / "first_hour.txt"
INSTALL_LIMIT_S = 900
STATE = re.compile(r"\d\d:\d\d:\d\d ")
"""Services become ready in any order."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the kept transcript")
    arguments = parser.parse_args()
    lines = [line for part in (first_screen(), *map(page, PAGES)) for line in part]
    print("\n".join(lines))
    if arguments.check:
        kept = TRANSCRIPT.read_text().splitlines()
        difference = tour.differs(*(list(filterfalse(STATE.match, one)) for one in (kept, lines)))
        if difference:
            print(
                f"first_hour: not as {TRANSCRIPT.relative_to(ROOT)}: {difference}", file=sys.stderr
            )
            return 1
    return 0


README = (ROOT / "README.md").read_text()
PAGES = {
    "README.md": README[: README.index("## In containers")],
    "docs/coming-from.md": (ROOT / "docs" / "coming-from.md").read_text(),
}


def first_screen() -> list[str]:
    """The three commands that README.md begins with, in the clone."""
    block = re.search(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert block is not None
    commands = block[1].strip()
    ran = subprocess.run(
        ["bash", "-c", f"exec 2>&1\nset -e\n{commands}\nstratamq down --data d\nrm -r d"],
        cwd=ROOT,
        env={**os.environ, "PIP_QUIET": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=INSTALL_LIMIT_S,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"the first commands of README.md fail:\n{ran.stdout}")
    return [*(f"$ {line}" for line in commands.splitlines()), *ran.stdout.splitlines()]


def page(name: str) -> list[str]:
    steps = tour.typed(PAGES[name])
    path = f"{ROOT / 'venv' / 'bin'}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as place:
        seen = tour.run(
            [step.command for step in steps],
            Path(place),
            {**os.environ, "PATH": path, "HOME": place},
            tour.DEFAULT_PORT,
        )
    lines = [f"# {name}"]
    for step, shown in zip(steps, seen, strict=True):
        difference = tour.differs(step.shown, shown)
        if difference:
            raise SystemExit(f"{name}: $ {step.command}\n{difference}")
        first, *rest = step.command.splitlines()
        lines += [f"$ {first}", *(f"> {line}" for line in rest), *shown]
    return lines


if __name__ == "__main__":
    sys.exit(main())
