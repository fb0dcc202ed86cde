"""Why the queues are looked at again: a *pass* over the log, of one of three kinds.

An answer of the log after which something must be looked at again begins a *pass*:

    CHECKED    our watermark stands; only what is behind it in the files is unknown
    CUT        the log went back to an earlier offset, and the queues with it
    COMPARED   nothing is known of the files: all of the log is read again, and they are compared

A pass is over when the queues are where they must be to serve, and what is stale in the files has
been zeroed. In a COMPARED pass the watermark is *partial* until then: the files hold all of the log
below it, and anything behind it. An interrupted pass goes on from there (`resuming`).
"""

import enum
from dataclasses import dataclass


class Pass(enum.Enum):
    """Why the queues do not yet agree with the log."""

    CHECKED = "checked"
    CUT = "cut"
    COMPARED = "compared"


@dataclass(slots=True)
class Passes:
    """The engine begins a pass, the saver ends it."""

    kind: Pass | None = None
    """The pass that is not over yet."""
    number: int = 0
    """How many have begun."""

    def begin(self, kind: Pass) -> None:
        self.kind = kind
        self.number += 1
