"""Scenarios: texts of commands, each followed by its outcome.

    # The leader is killed: the next in-sync replica leads.
    create t 0,1,2 min.insync.replicas=2
    kill 0
    state t
    > t-0: leader 1, epoch 1, in sync 1,2, replicas 0,1,2

    command      a verb and its words. A word with `=` is an option, `key=value`. The order of the other words counts;
                 options may stand anywhere after the verb.
    > outcome    the outcome of the command above, on any number of lines
    # comment    kept as it is, as are empty lines, which group commands

`play` runs the commands and returns the text with the present outcomes. A test compares the two texts. A new scenario
needs no outcomes: rewriting the text adds them, and its author reviews them as a diff.

A vocabulary is an object whose methods are the verbs. For `kill 0 1`, `perform` calls its method `do_kill`. The method
gets plain words as positional arguments and options as keyword arguments, and returns the lines of the outcome, or
None. (Keys of options may have dots and dashes: `**options` takes any.) The vocabulary's `step` does the work around
each command, such as waiting until the cluster is idle.

A command that its vocabulary does not understand raises ScenarioError with the line. Any other error gets a note with
the line.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

OUTCOME = "> "
COMMENT = "#"
VERB_METHOD = "do_"
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class ScenarioError(Exception):
    """Raised if the vocabulary does not understand a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    verb: str
    words: tuple[str, ...]
    options: dict[str, str]


Step = Callable[[Command], Awaitable[Iterable[str]]]


async def play(text: str, step: Step) -> str:
    """Run the commands, and return the text with their outcomes."""
    played: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(OUTCOME):
            continue
        played.append(line)
        if line.strip() and not line.startswith(COMMENT):
            played += [OUTCOME + outcome for outcome in await _step(step, number, line)]
    return "\n".join(played) + "\n"


async def _step(step: Step, number: int, line: str) -> Iterable[str]:
    try:
        return await step(read_command(line))
    except ScenarioError as error:
        raise ScenarioError(f"line {number}, `{line}`: {error}") from None
    except Exception as error:
        error.add_note(f"in line {number} of the scenario: {line}")
        raise


def read_command(line: str) -> Command:
    verb, *words = line.split()
    plain = tuple(word for word in words if "=" not in word)
    options = (word.partition("=") for word in words if "=" in word)
    return Command(verb=verb, words=plain, options={key: value for key, _, value in options})


async def perform(vocabulary: object, command: Command) -> list[str]:
    """Call the vocabulary's method for the verb, and return the lines of its outcome."""
    method = getattr(vocabulary, VERB_METHOD + command.verb, None)
    if method is None:
        raise ScenarioError(f"no verb {command.verb!r}; the verbs are {', '.join(verbs(vocabulary))}")
    try:
        inspect.signature(method).bind(*command.words, **command.options)
    except TypeError as error:
        raise ScenarioError(f"{command.verb}: {error}") from None
    return list(await method(*command.words, **command.options) or [])


def verbs(vocabulary: object) -> list[str]:
    return [name.removeprefix(VERB_METHOD) for name in dir(vocabulary) if name.startswith(VERB_METHOD)]


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `500ms`, `10s`, `30m`, `6h` or `7d`."""
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    if not found:
        raise ScenarioError(f"{text!r} is no duration such as 500ms, 10s, 30m, 6h or 7d")
    return int(found[1]) * _UNITS_MS[found[2]]
