"""Commands that are run against a broker: the fixture of `tests/cli`."""

from tests.cli.conftest import stratamq

__all__ = ["stratamq"]
