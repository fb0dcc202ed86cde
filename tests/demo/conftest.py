"""The demo's modules are imported from beside `scripts/demo.py`, as when it runs."""

import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
