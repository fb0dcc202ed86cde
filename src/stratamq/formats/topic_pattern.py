"""Patterns of topic names, matched in a time that grows with the name alone.

Python's own expressions go back and try again: `(a+)+b` takes longer than anyone waits on forty
letters. RE2 never goes back; what needs that (a reference to a group, a look ahead or behind) it
refuses.
"""

import re

from stratamq.errors import InvalidRequestError

_UNKNOWN = re.VERBOSE | re.LOCALE


class TopicPattern:
    """Immutable. InvalidRequestError for what RE2 does not know."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str | re.Pattern[str]) -> None:
        """A compiled expression gives its text, and its flags IGNORECASE and DOTALL."""
        import re2  # here: commands and clients without a pattern need not load it

        text, flags = pattern, 0
        if isinstance(pattern, re.Pattern):
            text, flags = pattern.pattern, pattern.flags
        if not isinstance(text, str) or flags & _UNKNOWN:
            raise InvalidRequestError(
                f"a pattern of topics is a text without the flags VERBOSE and LOCALE: {text!r:.200}"
            )
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = not flags & re.IGNORECASE
        options.dot_nl = bool(flags & re.DOTALL)
        self.pattern: str = text
        try:
            self._compiled = re2.compile(text, options)
        except (re2.error, UnicodeEncodeError) as error:
            raise InvalidRequestError(
                f"the pattern {text!r:.200}: {_reason(error)}. Patterns of topics are in RE2's "
                "syntax, which has no references to groups and does not look ahead or behind"
            ) from error

    def fullmatch(self, name: str) -> bool:
        """Whether the whole name is of the pattern."""
        return self._compiled.fullmatch(name) is not None


def _reason(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(error)
