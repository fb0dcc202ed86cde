"""One process of a room; whatever exists at the lock's path is reported, without a traceback."""

import os
from pathlib import Path

import pytest

from stratamq.errors import StoreRefusedError
from stratamq.files.real import RealFiles
from stratamq.service.room_lock import take_room_lock

PATH = "stratamq/index.lock"


def test_a_second_process_is_refused_until_the_first_lets_go(tmp_path: Path):
    held = take_room_lock(RealFiles(tmp_path), "index")
    with pytest.raises(StoreRefusedError, match="in use: another index service"):
        take_room_lock(RealFiles(tmp_path), "index")
    held.close()
    take_room_lock(RealFiles(tmp_path), "index").close()


@pytest.mark.parametrize("what", ["directory", "link", "fifo"])
def test_what_can_be_no_lock_is_refused_by_its_name(tmp_path: Path, what: str):
    path = tmp_path / PATH
    path.parent.mkdir()
    if what == "directory":
        path.mkdir()
    elif what == "link":
        path.symlink_to(path.name)
    else:
        os.mkfifo(path)
    with pytest.raises(StoreRefusedError, match=r"stratamq/index\.lock cannot be locked: "):
        take_room_lock(RealFiles(tmp_path), "index")


def test_a_file_where_our_directory_should_be_is_refused(tmp_path: Path):
    (tmp_path / "stratamq").write_bytes(b"not a directory")
    with pytest.raises(StoreRefusedError, match="cannot be locked: Not a directory"):
        take_room_lock(RealFiles(tmp_path), "index")
