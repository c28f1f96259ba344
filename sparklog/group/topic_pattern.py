"""Regular expressions over topic names. Matching takes time linear in the name, for any expression that a client sends.

Kafka compiles subscriptions with RE2J and matches whole names. This module uses RE2, of which RE2J is a port. Python's
own `re` backtracks: one expression such as `(a+)+b` could block the broker for hours.
"""

from __future__ import annotations

from functools import lru_cache

import re2

from sparklog.base.errors import InvalidRegularExpression

MAX_LENGTH = 4096
MAX_BYTES = 1 << 20
"""Memory limit of a compiled expression with its automaton: RE2 refuses a larger one, or matches without automaton."""
_OPTIONS = re2.Options()
_OPTIONS.max_mem = MAX_BYTES
_OPTIONS.log_errors = False


class TopicPattern:
    """A compiled expression. Raises InvalidRegularExpression if RE2 cannot compile it, or it is too large."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidRegularExpression(f"the expression has {len(text)} characters, the limit is {MAX_LENGTH}")
        try:
            self._pattern = re2.compile(text, _OPTIONS)
        except re2.error as error:
            why = error.args[0].decode(errors="replace")
            raise InvalidRegularExpression(f"{text!r} is not a regular expression: {why}") from None

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole name."""
        return self._pattern.fullmatch(name) is not None


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> TopicPattern:
    """Return the compiled pattern. Cached: the same expressions are matched after every change of the topics."""
    return TopicPattern(text)
