"""The controller, told step by step in `scenarios/`; what the steps mean is in `controller_scenario.py`.

`pytest tests/controller/test_controller_scenarios.py --rewrite-scenarios` writes what happens into the files: look at
the diff.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.testing.sim_loop import SimLoop
from support.scenarios.controller import ControllerScenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


def steps(text: str) -> Iterator[tuple[str, bool]]:
    """Comments and commands, in their order; whether it is a command."""
    is_expected = False
    for line in text.splitlines():
        if line == "----":
            is_expected = True
        elif is_expected:
            is_expected = bool(line)
        elif line:
            yield line, not line.startswith("#")


async def play(text: str) -> str:
    scenario = ControllerScenario()
    out: list[str] = []
    for line, is_command in steps(text):
        if is_command:
            happened = await scenario.step(line)
            out.append("\n".join([line, "----", *happened, ""]))
        else:
            is_continued = bool(out) and out[-1].startswith("#")
            out[-1:] = [out[-1].rstrip("\n") + f"\n{line}\n"] if is_continued else [*out[-1:], f"{line}\n"]
    return "\n".join(out)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_controller_does_as_the_scenario_tells(path: Path, request: pytest.FixtureRequest) -> None:
    loop = SimLoop()
    played = loop.run(play(path.read_text()))

    assert not loop.errors
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(played)
    assert played == path.read_text()
