"""`stratamq bench shards`, small: every broker behind the name is seen, and what they cost."""

import json

from tests.cli.processes import stratamq


def test_a_client_of_many_shards_is_measured():
    options = ("--shards", "4", "--topics", "3", "--messages", "40", "--output", "json")
    done = stratamq("bench", "shards", *options)
    assert done.returncode == 0, done.stderr.decode()
    cases = {case["case"]: case for case in json.loads(done.stdout)["cases"]}
    look = cases["shards: the first look"]["measured"]
    assert look["more_descriptors"] >= 4, "a connection to each"
    assert cases["shards: messages sent one by one"]["messages_per_s"] > 0
