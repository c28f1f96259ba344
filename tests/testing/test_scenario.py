"""The player of scenarios, with a vocabulary of its own."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.testing.scenario import Command, ScenarioError, duration_ms, perform, play, read_command

pytestmark = pytest.mark.slow


class Numbers:
    def __init__(self) -> None:
        self.total = 0

    async def step(self, command: Command) -> list[str]:
        return await perform(self, command)

    async def do_add(self, *numbers: str, times: str = "1") -> None:
        self.total += sum(map(int, numbers)) * int(times)

    async def do_set(self, /, **totals: str) -> None:
        self.total = int(totals["the.total-0"])

    async def do_show(self, what: str) -> list[str]:
        return [f"{what} {self.total}", "and no more"]


def play_numbers(text: str) -> str:
    return asyncio.run(play(text, Numbers().step))


def test_outcomes_are_replaced_and_all_else_is_kept() -> None:
    text = "# Sums.\n\nadd 1 times=3 2\n> what was said before\n\n# So it is:\nshow total\n"

    played = play_numbers(text)

    assert played == "# Sums.\n\nadd 1 times=3 2\n\n# So it is:\nshow total\n> total 9\n> and no more\n"
    assert play_numbers(played) == played


def test_an_option_is_split_at_its_first_equals_sign() -> None:
    command = read_command("consume a regex=t=.* keeping")
    assert command == Command(verb="consume", words=("a", "keeping"), options={"regex": "t=.*"})


def test_keys_of_options_may_have_dots_and_dashes() -> None:
    assert play_numbers("set the.total-0=7\nshow it").splitlines()[2] == "> it 7"


def test_an_unknown_verb_names_its_line_and_the_verbs_that_there_are() -> None:
    with pytest.raises(ScenarioError) as raised:
        play_numbers("# Sums.\nadd 1\n\nadds 2 3")
    assert str(raised.value) == "line 4, `adds 2 3`: no verb 'adds'; the verbs are add, set, show"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("show", "show: missing a required argument: 'what'"),
        ("show a b", "show: too many positional arguments"),
        ("add 1 time=3", "add: got an unexpected keyword argument 'time'"),
    ],
)
def test_words_that_the_verb_does_not_take_are_refused(line: str, reason: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        play_numbers(line)
    assert str(raised.value) == f"line 1, `{line}`: {reason}"


def test_any_other_error_tells_its_line() -> None:
    with pytest.raises(ValueError, match="invalid literal") as raised:
        play_numbers("add 1\nadd one")
    assert raised.value.__notes__ == ["in line 2 of the scenario: add one"]


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("10s", 10_000), ("30m", 1_800_000), ("7d", 604_800_000)])
def test_durations_have_units(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


def test_a_number_without_a_unit_is_no_duration() -> None:
    with pytest.raises(ScenarioError, match="'10' is no duration"):
        duration_ms("10")
