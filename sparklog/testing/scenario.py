"""Scenarios: texts of commands, each followed by its outcome.

    # The leader is killed: the next in-sync replica leads.
    create t 0,1,2 min.insync.replicas=2
    kill 0
    state t
    > t-0: leader 1, epoch 1, in sync 1,2, replicas 0,1,2

    command      A verb and its words. A word that contains `=` is an option, `key=value`. The others are plain words;
                 their order matters. Options may stand anywhere after the verb.
    > outcome    A line of the outcome of the command above. A command may have several such lines, or none.
    # comment    `play` keeps comments and empty lines. Empty lines group the commands that belong together.

`play` runs the commands and returns the text with their current outcomes. A test compares this text with the old one.
An author writes a new scenario without outcomes, lets the tests add them, and reviews the diff.

A vocabulary is an object with one method per verb. For `kill 0 1`, `perform` calls its method `do_kill`, which gets
plain words as positional arguments and options as keyword arguments. It returns the lines of the outcome, or None.
(Keys of options may contain dots and dashes: `**options` takes any.) The vocabulary's own `step` does the common work
of all commands, for example a wait until the cluster is quiet.

A command that the vocabulary does not understand raises ScenarioError, which names the line. Any other error gets a
note that names the line.
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
    """The vocabulary does not understand a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One line of a scenario, split into its words."""

    verb: str
    words: tuple[str, ...]
    options: dict[str, str]


Step = Callable[[Command], Awaitable[Iterable[str]]]


async def play(text: str, step: Step) -> str:
    """Run the commands of `text` in order. Return the text with their current outcomes; raise ScenarioError."""
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
    """Return the command in a line. The line must contain a verb."""
    verb, *words = line.split()
    plain = tuple(word for word in words if "=" not in word)
    options = (word.partition("=") for word in words if "=" in word)
    return Command(verb=verb, words=plain, options={key: value for key, _, value in options})


async def perform(vocabulary: object, command: Command) -> list[str]:
    """Call the vocabulary's method for the verb. Return the lines of the outcome.

    Raise ScenarioError if there is no such verb, or if its method does not take these words and options.
    """
    method = getattr(vocabulary, VERB_METHOD + command.verb, None)
    if method is None:
        raise ScenarioError(f"no verb {command.verb!r}; the verbs are {', '.join(verbs(vocabulary))}")
    try:
        inspect.signature(method).bind(*command.words, **command.options)
    except TypeError as error:
        raise ScenarioError(f"{command.verb}: {error}") from None
    return list(await method(*command.words, **command.options) or [])


def verbs(vocabulary: object) -> list[str]:
    """Return the verbs of the vocabulary, sorted."""
    return [name.removeprefix(VERB_METHOD) for name in dir(vocabulary) if name.startswith(VERB_METHOD)]


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `500ms`, `10s`, `30m`, `6h` or `7d`. Raise ScenarioError."""
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    if not found:
        raise ScenarioError(f"{text!r} is no duration such as 500ms, 10s, 30m, 6h or 7d")
    return int(found[1]) * _UNITS_MS[found[2]]
