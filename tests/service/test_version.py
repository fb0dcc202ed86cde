"""The version that a program can ask for."""

from importlib.metadata import version

import pytest

import stratamq


def test_the_package_has_the_version_that_is_installed():
    assert stratamq.__version__ == version("stratamq")
    with pytest.raises(AttributeError, match="no attribute 'versions'"):
        _ = stratamq.versions
