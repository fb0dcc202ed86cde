"""Programs that a test needs and not every machine has."""

import os
import shutil

import pytest


def tool(name: str) -> str:
    """Its path: STRATAMQ_NAME contains it, or it is on the PATH. Else the test is skipped."""
    found = os.environ.get(f"STRATAMQ_{name.upper()}") or shutil.which(name)
    if found is None:
        pytest.skip(
            f"{name} is not here: put it on the PATH, or name it in STRATAMQ_{name.upper()}"
        )
    return found
