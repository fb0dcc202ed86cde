"""A slave of ours behind a master of ours, as real processes: it has every byte."""

from tests.ha.pairs import Pair


def test_a_slave_has_every_byte(tmp_path):
    with Pair(tmp_path) as pair:
        pair.start()
        pair.send(200)
        pair.caught_up()
        pair.assert_equal()
        assert len(list((tmp_path / "slave" / "commitlog").iterdir())) > 3
