"""The controller, told step by step in `scenarios/`; `support/scenarios/controller.py` says what the steps mean."""

from __future__ import annotations

from pathlib import Path

from support.scenarios.controller import play_controller
from support.scenarios.texts import CheckScenario, scenario_texts


@scenario_texts(__file__)
def test_the_controller_does_as_the_scenario_tells(path: Path, check_scenario: CheckScenario) -> None:
    check_scenario(path, play_controller)
