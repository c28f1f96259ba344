"""What a PromQL expression asks for: the series it names, and the labels. For expressions of alerts and dashboards.

This is no parser: it checks brackets and the names of functions and aggregations, and takes every other name for a
series, or for a label where only labels can stand.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_FUNCTIONS = {"rate", "increase", "histogram_quantile", "vector", "label_values"}
_AGGREGATIONS = {"sum", "max", "min", "count"}
_GROUPINGS = {"by", "without", "on", "ignoring"}
_OPERATORS = {"and", "or", "unless", "bool"}
_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[a-zA-Z_]\w*)|(?P<number>\d+(?:\.\d+)?)(?![\w.])|(?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])
    |(?P<text>"[^"]*")|(?P<operator>=~|!~|!=|==|>=|<=|[-+*/<>=])|(?P<bracket>[(){},]))""",
    re.VERBOSE,
)
_PAIRS = {")": "(", "}": "{"}


class Asked(NamedTuple):
    """A series, and the labels that its selector names; or the labels of a grouping, with no series."""

    series: str
    labels: frozenset[str]


class NotPromQL(ValueError):
    """The text is no expression."""


def asked(expr: str) -> list[Asked]:
    """What the expression asks for, in order; a grouping comes after its word. Raises NotPromQL."""
    tokens = _tokens(expr)
    found: list[Asked] = []
    open_brackets: list[str] = []
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind == "bracket" and text in "({":
            open_brackets.append(text)
        elif kind == "bracket" and text in ")}":
            if not open_brackets or open_brackets.pop() != _PAIRS[text]:
                raise NotPromQL(f"{text} too much in {expr!r}")
        elif kind == "name" and text in _GROUPINGS:
            labels, at = _grouped(expr, tokens, at)
            found.append(Asked("", labels))
        elif kind == "name" and text in _FUNCTIONS | _AGGREGATIONS:
            if following != "(" and not (text in _AGGREGATIONS and following in _GROUPINGS):
                raise NotPromQL(f"{text} takes something in {expr!r}")
        elif kind == "name" and text not in _OPERATORS:
            if following == "(":
                raise NotPromQL(f"there is no function {text} in {expr!r}")
            labels, at = _selected(expr, tokens, at) if following == "{" else (frozenset(), at)
            found.append(Asked(text, labels))
    if open_brackets:
        raise NotPromQL(f"{open_brackets[-1]} is not closed in {expr!r}")
    return found


def _tokens(expr: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(expr.rstrip()):
        found = _TOKEN.match(expr, at)
        if not found or not found.lastgroup:
            raise NotPromQL(f"{expr[at:]!r} in {expr!r}")
        tokens.append((found.lastgroup, found[found.lastgroup]))
        at = found.end()
    return tokens


def _grouped(expr: str, tokens: list[tuple[str, str]], at: int) -> tuple[frozenset[str], int]:
    """The labels of `(a, b)` from `at` on, and where it ends."""
    texts = [text for _, text in tokens[at:]]
    if texts[:1] != ["("] or ")" not in texts:
        raise NotPromQL(f"a grouping without labels in {expr!r}")
    end = texts.index(")")
    labels = texts[1:end:2]
    if texts[2:end:2] != [","] * (len(labels) - 1) or not all(map(str.isidentifier, labels)):
        raise NotPromQL(f"a grouping of {' '.join(texts[1:end])} in {expr!r}")
    return frozenset(labels), at + end + 1


def _selected(expr: str, tokens: list[tuple[str, str]], at: int) -> tuple[frozenset[str], int]:
    """The labels of `{a="x", b=~"y"}` from `at` on, and where it ends."""
    texts = [text for _, text in tokens[at:]]
    if "}" not in texts:
        raise NotPromQL(f"a selector without an end in {expr!r}")
    end = texts.index("}")
    matchers = [part.split() for part in " ".join(texts[1:end]).split(" , ")]
    if any(len(each) != 3 or each[1] not in ("=", "=~", "!=", "!~") for each in matchers):
        raise NotPromQL(f"a matcher is no matcher in {expr!r}")
    return frozenset(each[0] for each in matchers), at + end + 1
