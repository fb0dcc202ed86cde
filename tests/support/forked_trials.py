"""A fixture: the services of `stratamq torture`'s trials are forked."""

import sys
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import pytest
from stratamq_torture.processes.services import Process, Services

from tests.support.forked import ForkedService

OWN_COMMAND = [sys.executable, "-m", "stratamq.service.supervised"]


@pytest.fixture(scope="session", autouse=True)
def forked_services() -> Iterator[None]:
    start = Services.start_process

    def start_process(command: Sequence[str], output: BinaryIO) -> Process:
        """Behind a prefix, strace's for example, it is started as ever."""
        if command[: len(OWN_COMMAND)] != OWN_COMMAND:
            return start(command, output)
        return ForkedService(command, output)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Services, "start_process", staticmethod(start_process))
        yield
