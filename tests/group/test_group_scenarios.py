"""Groups, told step by step in `scenarios/`; what the steps mean is in `scenario.py`.

`pytest tests/group/test_group_scenarios.py --rewrite-scenarios` writes what happens into the files: look at the diff.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scenarios.group import Scenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


def steps(text: str) -> Iterator[tuple[str, str | None]]:
    """The head (no command), then each step's command, with comments before it."""
    head: list[str] = []
    expected = False
    for line in text.splitlines():
        if line == "----":
            expected = True
        elif expected:
            expected = bool(line)
        elif line and not line.startswith("#"):
            yield "\n".join(head), line
            head = []
        elif line.startswith("#"):
            head.append(line)
    if head:
        yield "\n".join(head), None


async def play(text: str) -> str:
    scenario = Scenario()
    out: list[str] = []
    for comment, command in steps(text):
        if comment:
            out.append(f"{comment}\n")
        if command is not None:
            happened = await scenario.step(command)
            out.append("\n".join([command, "----", *happened]) + "\n")
    scenario.close()
    return "\n".join(out)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_groups_do_as_the_scenario_tells(path: Path, request: pytest.FixtureRequest) -> None:
    played = asyncio.run(play(path.read_text()))

    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(played)
    assert played == path.read_text()
