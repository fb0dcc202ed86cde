"""The examples of docs/python.md run as they stand there."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.brokers import DELIVERY, ROOMS, Broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
SETTINGS = (
    "commitlog.segment_bytes=8388608",
    "index.index_slots=5000",
    "index.index_items=40000",
)
DEADLINE_S = 120


def test_every_example_of_the_page_runs(tmp_path):
    guide, _, _ = PAGE.read_text().partition("## Reference")
    program = "\n".join(re.findall(r"```python\n(.*?)```", guide, re.DOTALL))
    with Broker(tmp_path / "d", tmp_path / "logs", SETTINGS) as broker:
        broker.start([*ROOMS, DELIVERY])
        ran = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert "paid b'first'" in ran.stdout
    assert "attempt 1 b'resize'" in lines
    assert sum(line.endswith("b'second'") for line in lines) == 1
    assert "1" in lines
