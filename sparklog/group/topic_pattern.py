"""Regular expressions over topic names, in time linear in the name, whatever a client sends.

Kafka compiles a subscription with RE2J and matches whole names; this is RE2, of which RE2J is a port. Python's own `re`
backtracks, so that one expression such as `(a+)+b` could hold up the broker for hours.
"""

from __future__ import annotations

from functools import lru_cache

import re2

from sparklog.base.errors import InvalidRegularExpression

MAX_LENGTH = 4096
MAX_BYTES = 1 << 20
"""Memory of a compiled expression, its automaton included: a larger one is refused, or goes on without."""
_OPTIONS = re2.Options()
_OPTIONS.max_mem = MAX_BYTES
_OPTIONS.log_errors = False


class TopicPattern:
    """A compiled expression. Raises InvalidRegularExpression where it is none of RE2's, or too large."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidRegularExpression(f"the expression has {len(text)} characters, the limit is {MAX_LENGTH}")
        try:
            self._pattern = re2.compile(text, _OPTIONS)
        except re2.error as error:
            why = error.args[0].decode(errors="replace")
            raise InvalidRegularExpression(f"{text!r} is not a regular expression: {why}") from None

    def matches(self, name: str) -> bool:
        """Whether the whole name is matched."""
        return self._pattern.fullmatch(name) is not None


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> TopicPattern:
    """The pattern: expressions come again with every change of the topics."""
    return TopicPattern(text)
