"""SIGKILL at any moment of an export to Iceberg leaves neither a gap nor a duplicate."""

from tests.pipeline.iceberg_kills import trial


def test_a_killed_export_goes_on_where_its_table_ends(tmp_path):
    found = trial(tmp_path, kills=5, seed=20)
    assert (found.missing, found.twice) == (0, 0)
    assert found.messages == 2000 and found.commits > 2
