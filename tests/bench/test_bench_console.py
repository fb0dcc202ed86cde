"""`stratamq bench console`, small: every page is asked for, and what open ones cost."""

import json

from tests.cli.processes import stratamq

PAGES = 14


def test_every_page_and_open_ones_are_measured(tmp_path):
    sizes = ("--topics", "30", "--messages", "10000", "--requests", "2", "--seconds", "1")
    done = stratamq("bench", "console", *sizes, "--dir", str(tmp_path), "--output", "json")
    assert done.returncode == 0, done.stderr.decode()
    cases = [one["measured"] for one in json.loads(done.stdout)["cases"]]
    assert len(cases) == PAGES + 1
    assert all(0 < one["page_kib"] < 300 and one["p95_ms"] > 0 for one in cases[:PAGES])
    # In a second the console may take less than the kernel's tick.
    assert cases[-1]["append_p99_ms"] > 0 and cases[-1]["console_cpu_percent"] >= 0
