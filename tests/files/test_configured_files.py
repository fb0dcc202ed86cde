"""Files that a setting names: what is wrong with one is an error that names it."""

import os

import pytest

from stratamq.errors import ConfigurationError
from stratamq.files.configured_files import read_whole, stamp_of


def test_a_file_is_read_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_whole(path, 5) == b"12345"
    with pytest.raises(ConfigurationError, match="larger than 4 bytes"):
        read_whole(path, 4)


def test_a_file_that_is_not_there_is_named_with_its_setting(tmp_path):
    path = tmp_path / "absent"
    for use in (lambda: stamp_of(path, "access.file"), lambda: read_whole(path, 9, "access.file")):
        with pytest.raises(ConfigurationError, match=rf"^access.file {path}: No such file"):
            use()
    with pytest.raises(ConfigurationError, match=rf"^{path}: No such file"):
        stamp_of(path)


def test_a_file_that_was_replaced_has_another_stamp(tmp_path):
    path, other = tmp_path / "file", tmp_path / "other"
    for one in (path, other):
        one.write_bytes(b"12345")
        os.utime(one, ns=(1, 1))
    before = stamp_of(path)
    assert stamp_of(path) == before
    other.replace(path)
    assert stamp_of(path) != before
