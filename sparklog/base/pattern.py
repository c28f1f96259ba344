"""Regular expressions over names. Matching takes time linear in the name, for any expression that a client sends.

Kafka compiles expressions of clients with RE2J and matches whole names. This module uses RE2, of which RE2J is a port.
Python's own `re` backtracks: one expression such as `(a+)+b` could block the broker for hours.

RE2 needs some microseconds for a name, but milliseconds if an expression's automaton does not fit into its memory. So
callers match many names in slices. Expressions that compile to more than some 4,000 instructions are refused.

Two features would cost far more. Capturing groups take memory for each group and instruction: 100 MB for 2,000 groups.
Only the whole name matters, so groups capture nothing. A Unicode class such as `\\pL` has hundreds of ranges, which RE2
builds before it checks its size limit, so few are allowed.
"""

from __future__ import annotations

from functools import lru_cache

import re2

from sparklog.base.errors import InvalidRegularExpression

MAX_LENGTH = 4096
MAX_BYTES = 64 << 10
"""Memory limit of a compiled expression with its automaton. RE2 refuses a larger expression, or matches it without an
automaton, which takes up to 10 ms for a name."""
MAX_UNICODE_CLASSES = 20
"""Each takes 0.1 ms to compile. Topic names are ASCII, so expressions need none."""
_OPTIONS = re2.Options()
_OPTIONS.max_mem = MAX_BYTES
_OPTIONS.never_capture = True
_OPTIONS.log_errors = False


class Pattern:
    """A compiled expression. Raises InvalidRegularExpression if the expression is invalid or too large."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidRegularExpression(f"the expression has {len(text)} characters, the limit is {MAX_LENGTH}")
        if (classes := text.count(r"\p") + text.count(r"\P")) > MAX_UNICODE_CLASSES:
            raise InvalidRegularExpression(
                f"the expression has {classes} classes of Unicode, the limit is {MAX_UNICODE_CLASSES}"
            )
        try:
            self._pattern = re2.compile(text, _OPTIONS)
        except re2.error as error:
            why = error.args[0].decode(errors="replace")
            raise InvalidRegularExpression(f"{text!r} is not a regular expression: {why}") from None

    def matches(self, name: str) -> bool:
        """Return whether the expression matches the whole name."""
        return self._pattern.fullmatch(name) is not None


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Return the compiled pattern. Cached: the same expressions are matched again and again."""
    return Pattern(text)
