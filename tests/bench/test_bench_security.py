"""`stratamq bench security`, small: it runs to its end, and compares with the same in clear."""

import json

from tests.cli.processes import stratamq


def test_the_costs_of_tls_and_of_permissions_are_measured_beside_none():
    done = stratamq("bench", "security", "--rounds", "1", "--messages", "500", "--output", "json")
    assert done.returncode == 0, done.stderr.decode()
    cases = json.loads(done.stdout)["cases"]
    assert [case["case"].partition(", TLS")[0] for case in cases] == [
        "security: fast stream",
        "security: fast stream",
        "security: unary calls, one at a time",
        "security: unary calls, one at a time",
    ]
    assert all(case["floor"]["messages_per_s"] > 0 and case["ratio"] > 0 for case in cases)
