"""Simulated clusters with faults and constant merges of segments: all replicas end with equal logs."""

from __future__ import annotations

import dataclasses

import pytest

from sparklog.testing.sim.command import describe
from sparklog.testing.sim.run import run
from sparklog.testing.sim.seed import scenario_of
from support.runs.seeds import seeds


@pytest.mark.slow
@pytest.mark.soak
def test_segments_that_are_replaced_on_leaders_are_the_same_everywhere_in_the_end() -> None:
    for seed in seeds(2, soak=20):
        scenario = dataclasses.replace(
            scenario_of(seed, lasts_s=6.0), merges=True, retention_bytes=-1, retention_ms=-1, trims=False
        )
        verdict = run(scenario)
        assert not verdict.anomalies, describe(verdict)
        assert verdict.acknowledged
