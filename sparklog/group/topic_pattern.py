"""Regular expressions over topic names, in time linear in the name, whatever a client sends.

Kafka compiles a subscription with RE2J and matches whole names. Python's own `re` backtracks, so that one expression
such as `(a+)+b` could hold up the broker for hours; here its parser reads the expression and a lazy DFA matches it.
The DFA's states are kept from name to name; there are never more than `MAX_DFA_STATES` of them.

As with RE2, back references, lookaround, atomic groups and possessive repeats are refused, and so is an expression that
grows too large when its repeats are written out. Of RE2's own spellings `\\Q...\\E` and `\\z` are understood; classes
by name (`\\pL`, `[[:alpha:]]`) are refused: letters of topic names are ASCII, `[a-zA-Z]` says the same.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from functools import lru_cache
from re import _constants as c  # type: ignore[attr-defined]  # the parser's public alias is deprecated, this is what it is
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from sparklog.base.errors import InvalidRegularExpression

MAX_LENGTH = 4096
MAX_REPEAT = 1000  # as in RE2
MAX_STATES = 5000
MAX_DFA_STATES = 1000
_START, _WORD, _OTHER = "start", "word", "other"
_END = "end"
_WORD_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    c.CATEGORY_DIGIT: lambda x: x in "0123456789",
    c.CATEGORY_NOT_DIGIT: lambda x: x not in "0123456789",
    c.CATEGORY_SPACE: lambda x: x in " \t\n\r\f\v",
    c.CATEGORY_NOT_SPACE: lambda x: x not in " \t\n\r\f\v",
    c.CATEGORY_WORD: lambda x: x in _WORD_CHARACTERS,
    c.CATEGORY_NOT_WORD: lambda x: x not in _WORD_CHARACTERS,
}

Test = Callable[[str], bool]
Around = tuple[str, str]
"""What stands before and behind a position: one of start, word, other, and of end, word, other."""
_ASSERTIONS: dict[Any, Callable[[Around], bool]] = {
    c.AT_BEGINNING: lambda around: around[0] == _START,
    c.AT_BEGINNING_STRING: lambda around: around[0] == _START,
    c.AT_END: lambda around: around[1] == _END,
    c.AT_END_STRING: lambda around: around[1] == _END,
    c.AT_BOUNDARY: lambda around: (around[0] == _WORD) != (around[1] == _WORD),
    c.AT_NON_BOUNDARY: lambda around: (around[0] == _WORD) == (around[1] == _WORD),
}


class _State(NamedTuple):
    """One state of the NFA. `consumes`: the test of a character; `holds`: of a position; neither: a free step."""

    to: tuple[int, ...]
    consumes: Test | None = None
    holds: Callable[[Around], bool] | None = None


class _Node(NamedTuple):
    """A state of the DFA: where the NFA may be, before steps that take no character, and what stands before."""

    states: frozenset[int]
    before: str


class TopicPattern:
    """A compiled expression. Raises InvalidRegularExpression where it is not one, or not one that RE2 would take."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidRegularExpression(f"the expression has {len(text)} characters, the limit is {MAX_LENGTH}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)  # a class in a class: RE2 means something else by it
                parsed = _parser.parse(_translate(text))
            self._states: list[_State] = [_State(())]
            begin = _Compiler(self._states, parsed.state.flags).sequence(parsed, 0)
        except (re.error, FutureWarning, RecursionError, OverflowError) as error:
            raise InvalidRegularExpression(f"{text!r} is not a regular expression: {error}") from None
        self._begin = _Node(frozenset({begin}), _START)
        self._steps: dict[tuple[_Node, str], _Node] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name is matched."""
        node = self._begin
        for character in name:
            found = self._steps.get((node, character))
            node = found or self._step(node, character)
            if not node.states:
                return False
        return 0 in self._closure(node.states, (node.before, _END))

    def _step(self, node: _Node, character: str) -> _Node:
        kind = _WORD if character in _WORD_CHARACTERS else _OTHER
        reached = self._closure(node.states, (node.before, kind))
        states = (self._states[index] for index in reached)
        found = _Node(frozenset(s.to[0] for s in states if s.consumes and s.consumes(character)), kind)
        if len(self._steps) >= MAX_DFA_STATES:
            self._steps.clear()
        self._steps[node, character] = found
        return found

    def _closure(self, begin: Iterable[int], around: Around) -> set[int]:
        reached = set(begin)
        todo = list(reached)
        while todo:
            state = self._states[todo.pop()]
            if state.consumes is None and (state.holds is None or state.holds(around)):
                todo += (to for to in state.to if to not in reached)
                reached.update(state.to)
        return reached


class _Compiler:
    """Writes the NFA back to front: each part is told where it leads to, and says where it begins."""

    def __init__(self, states: list[_State], flags: int) -> None:
        self._states = states
        self._flags = flags
        self._parts = 0

    def sequence(self, parts: Any, to: int) -> int:
        for kind, what in reversed(list(parts)):
            to = self._part(kind, what, to)
        return to

    def _part(self, kind: Any, what: Any, to: int) -> int:
        self._parts += 1
        if self._parts > MAX_STATES:  # counted apart from states: `(((){1000}){1000}){1000}` has none
            raise re.error(f"the expression is too large: more than {MAX_STATES} parts")
        if kind in (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN):
            return self._add(_State((to,), consumes=self._test(kind, what)))
        if kind is c.AT:
            return self._add(_State((to,), holds=_ASSERTIONS[what]))
        if kind is c.BRANCH:
            return self._add(_State(tuple(self.sequence(branch, to) for branch in what[1])))
        if kind is c.SUBPATTERN:
            _, add, remove, parts = what
            outer, self._flags = self._flags, (self._flags | add) & ~remove
            begin = self.sequence(parts, to)
            self._flags = outer
            return begin
        if kind in (c.MAX_REPEAT, c.MIN_REPEAT):
            return self._repeat(*what, to=to)
        raise re.error(f"{str(kind).lower()} is not supported")

    def _repeat(self, least: int, most: Any, parts: Any, *, to: int) -> int:
        bounds = [bound for bound in (least, most) if bound is not c.MAXREPEAT]
        if max(bounds) > MAX_REPEAT:
            raise re.error(f"a repeat of more than {MAX_REPEAT}")
        if most is c.MAXREPEAT:
            again = self._add(_State((to,)))
            self._states[again] = _State((self.sequence(parts, again), to))
            to = again
        else:
            end = to
            for _ in range(most - least):
                to = self._add(_State((self.sequence(parts, to), end)))
        for _ in range(least):
            to = self.sequence(parts, to)
        return to

    def _add(self, state: _State) -> int:
        self._states.append(state)
        return len(self._states) - 1

    def _test(self, kind: Any, what: Any) -> Test:
        test = _test(kind, what)
        if self._flags & re.IGNORECASE:
            return lambda x: test(x.lower()) or test(x.upper())
        return test


def _test(kind: Any, what: Any) -> Test:
    if kind is c.ANY:
        return lambda x: x != "\n"
    if kind is c.LITERAL:
        return chr(what).__eq__
    if kind is c.NOT_LITERAL:
        return chr(what).__ne__
    if kind is c.RANGE:
        return lambda x: what[0] <= ord(x) <= what[1]
    if kind is c.CATEGORY:
        return _CATEGORIES[what]
    tests = [_test(*item) for item in what if item[0] is not c.NEGATE]
    negated = len(tests) < len(what)
    return lambda x: any(test(x) for test in tests) != negated


def _translate(text: str) -> str:
    """RE2's spelling in Python's: `\\Q...\\E` quotes, `\\z` is the end."""
    done: list[str] = []
    for place, part in enumerate(re.split(r"(\\Q.*?(?:\\E|$)|\\.)", text, flags=re.DOTALL)):
        if place % 2 == 0:
            done.append(part)
        elif part.startswith(r"\Q"):
            done.append(re.escape(part[2:].removesuffix(r"\E")))
        else:
            done.append({r"\z": r"\Z", r"\Z": r"\z"}.get(part, part))
    return "".join(done)


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> TopicPattern:
    """The pattern, with the states it has found so far: expressions come again with every change of the topics."""
    return TopicPattern(text)
