"""Scenarios of simulated clusters, in `scenarios/`; `sparklog/testing/sim/scenario.py` lists their commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.testing.sim.scenario import play_on_cluster
from support.scenarios.texts import CheckScenario, scenario_texts

pytestmark = pytest.mark.slow


@scenario_texts(__file__)
def test_a_cluster_does_as_the_scenario_tells(path: Path, check_scenario: CheckScenario) -> None:
    check_scenario(path, play_on_cluster)
