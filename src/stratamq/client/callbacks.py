"""What a caller gives to be called: whatever it raises, nothing of the client stops."""

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class Callback:
    """Its first failure is logged with its traceback, SystemExit and KeyboardInterrupt too: a
    stream is shared, and what it has sent is still to be answered."""

    def __init__(self, name: str, function: Callable[[Any], object]) -> None:
        self._name = name
        self._function = function
        self._failed = False

    def __call__(self, argument: Any) -> None:
        try:
            self._function(argument)
        except BaseException:
            if not self._failed:
                self._failed = True
                log.exception(
                    "%s failed; it is called again, and further failures are not logged", self._name
                )
