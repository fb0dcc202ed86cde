"""The demo's modules lie beside `scripts/demo.py`, as for whoever runs it."""

import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
