#!/usr/bin/env python3
"""Type what README.md and docs/coming-from.md show a new user, in a fresh clone, print what comes.

Fails when it has not the shape that the pages show. Needs nothing but Python and what README.md
asks for; makes `venv` in the clone. What it printed in an empty Debian 12, as an ordinary user
(`scripts/bare_root.sh scripts/first_hour.py`), is kept as tests/cli/first_hour.txt.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.cli import tour  # noqa: E402

INSTALL_LIMIT_S = 900


def main() -> int:
    lines = [line for part in (first_screen(), *map(page, PAGES)) for line in part]
    print("\n".join(lines))
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
