"""Simulated clusters with faults, in which segments of leaders are replaced all the time: all replicas end alike."""

from __future__ import annotations

import dataclasses

import pytest

from sparklog.testing.sim_run import run
from sparklog.testing.sim_seed import scenario_of


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_segments_that_are_replaced_on_leaders_are_the_same_everywhere_in_the_end(seed: int) -> None:
    scenario = dataclasses.replace(scenario_of(seed, lasts_s=8.0), merges=True, retention_bytes=-1, trims=False)
    verdict = run(scenario)
    assert not verdict.anomalies, verdict.anomalies
    assert verdict.acknowledged
