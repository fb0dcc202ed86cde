"""A whole broker whose log, queues and index are volumes of their own."""

from contextlib import ExitStack
from itertools import islice

import pytest

from tests.cli.processes import SMALL, Up
from tests.support.mounts import part_mounted

PARTS = ("commitlog", "consumequeue", "index")
BODY = b"x" * 100_000


@pytest.mark.parametrize("kind", ["bind", "tmpfs"])
def test_a_broker_whose_parts_are_mounts_stores_serves_and_starts_again(kind, tmp_path):
    data = tmp_path / "store"
    with ExitStack() as mounts:
        for part in PARTS:
            mounts.enter_context(part_mounted(kind, data / part, tmp_path / part))
            (data / part / "lost+found").mkdir(mode=0o700)
        for sent in (30, 60):
            with Up(data, *SMALL) as up:
                up.wait_ready()
                with up.client() as client:
                    for number in range(30):
                        stored = client.send("t", BODY, keys=[f"k{number}"], queue_id=0)
                        assert stored.stored
                    with client.consume("t", follow=True) as reader:
                        read = list(islice(reader, sent))
                    assert [message.body for message in read] == [BODY] * sent
                assert up.stop() == 0
        assert len(list((data / "commitlog").glob("0*"))) > 3
        assert not (data / "stratamq/aside").exists()
        for part in PARTS:
            assert (data / part / "lost+found").is_dir()
