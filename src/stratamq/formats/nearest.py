"""A proposal for a name that does not exist: the one that was probably meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean NAME?`, or nothing if no known name is near. Case does not count."""
    spelled = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), list(spelled), n=1)
    return f"; did you mean {spelled[close[0]]}?" if close else ""
