"""A kernel may do less than it was asked for: the real files continue until all of it is done."""

import os
from pathlib import Path

import pytest

from stratamq.files import real, system_calls
from stratamq.files.metadata import MetadataFile
from stratamq.files.real import RealFiles
from tests.support.disks import write_file

DATA = bytes(range(256)) * 40


@pytest.fixture
def store(tmp_path) -> RealFiles:
    return RealFiles(tmp_path / "store")


@pytest.fixture(params=[1, 7, 4096])
def short(request, monkeypatch) -> None:
    """No call moves more than so many bytes."""
    most, write, pread, preadv = request.param, os.pwrite, os.pread, os.preadv

    def short_preadv(descriptor, buffers, position, flags=0):
        (buffer,) = buffers
        return preadv(descriptor, [memoryview(buffer)[:most]], position)

    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:most], at))
    monkeypatch.setattr(os, "pread", lambda fd, length, at: pread(fd, min(length, most), at))
    monkeypatch.setattr(os, "preadv", short_preadv)


def contents(store: RealFiles, path: str) -> bytes:
    return (Path(store.root) / path).read_bytes()


def test_a_write_is_whole(store, short):
    store.create("a", len(DATA) + 20)
    store.open("a", writable=True).write(10, DATA)
    assert contents(store, "a") == bytes(10) + DATA + bytes(10)


def test_zeros_are_written_whole(store, short, monkeypatch):
    monkeypatch.setattr(system_calls, "zero_range", lambda *_: False)
    monkeypatch.setattr(real, "_ZEROS", bytes(1000))
    write_file(store, "a", b"\xff" * len(DATA))
    store.open("a", writable=True).zero(5, len(DATA) - 10)
    assert contents(store, "a") == b"\xff" * 5 + bytes(len(DATA) - 10) + b"\xff" * 5


@pytest.mark.parametrize("cold", [False, True], ids=["read", "read cold"])
def test_a_read_is_whole_up_to_the_end_of_the_file(store, short, cold):
    write_file(store, "a", DATA)
    file = store.open("a")
    read = file.read_cold if cold else file.read
    assert read(0, len(DATA)) == DATA
    assert read(100, 5000) == DATA[100:5100]
    assert read(len(DATA) - 10, 50) == DATA[-10:]


def test_a_metadata_file_is_whole(store, short):
    data = {"names": [f"name {number}" for number in range(500)]}
    MetadataFile(store, "stratamq/a.json").store(data)
    assert MetadataFile(store, "stratamq/a.json").load() == data
