"""The address of a running broker, from the path of a directory."""

import re
from pathlib import Path
from typing import Any

_ONE = r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}"
_ADDRESS = re.compile(rf"{_ONE}(,{_ONE})*|commitlog=.+")


def is_address(where: Any) -> bool:
    """`host:port`, several of them, or `commitlog=host:port,…`; what exists as a path is none."""
    if not isinstance(where, str):
        return False
    return _ADDRESS.fullmatch(where) is not None and not Path(where).exists()
