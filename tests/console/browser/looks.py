"""What holds for every page in a browser, light and dark, wide and on a phone: axe-core finds
nothing serious, and nothing is wider than the screen. Screenshots are made on demand."""

import os
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe

from tests.console.browser.conftest import WIDTHS

SERIOUS = ("serious", "critical")
PICTURES = os.environ.get("STRATAMQ_TEST_PICTURES", "")
"""A directory: the tests write their screenshots there."""


def look_at(page: Any, path: str, name: str) -> None:
    """Open a page in light and dark, wide and on a phone."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width, pixels in WIDTHS.items():
            page.set_viewport_size({"width": pixels, "height": 900})
            page.goto(path)
            page.wait_for_load_state("load")
            assert faults(page) == [], (path, scheme, width)
            overflow = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert overflow <= 0, f"{path} is {overflow} pixels wider than a {width} screen"
            if PICTURES:
                target = Path(PICTURES) / f"{name}-{scheme}-{width}.png"
                page.screenshot(path=target, full_page=True)


def faults(page: Any) -> list[str]:
    """What axe-core finds that is serious, a line each."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['help']}: {node['html'][:200]}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]
