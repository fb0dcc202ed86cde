"""A slice of `make demo-tier`, whole: an S3 server, local segments deleted, a broker restored."""

import json
import subprocess
import sys

from tests.cli.processes import environment
from tests.demo.sample import SCRIPTS, archive

FLIGHTS = 12_000


def test_a_slice_of_the_flights_comes_back_from_the_bucket_twice(tmp_path):
    source = archive(tmp_path, FLIGHTS)
    command = [sys.executable, str(SCRIPTS / "demo_tier.py"), "--flights", str(source)]
    command += ["--limit", str(FLIGHTS), "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = json.loads(done.stdout)["steps"]
    assert all(not step["faults"] for step in steps)
    reads = [step["count"] for step in steps if step["what"].startswith("read ")]
    assert reads == [FLIGHTS, FLIGHTS]
    (deleted,) = (step for step in steps if step["what"].startswith("delete "))
    assert deleted["count"] >= 1
    found = [step["count"] for step in steps if "by key" in step["what"]]
    assert len(found) == 2
    assert found[0] == found[1] > 0
