"""Simulated clusters that keep a history: no new anomalies, and the same run for a seed each time."""

from __future__ import annotations

import pytest

from sparklog.testing.sim.run import run
from sparklog.testing.sim.seed import scenario_of

SEED = 91_000


@pytest.mark.slow
def test_a_cluster_that_keeps_a_history_is_as_its_seed_says() -> None:
    kept, again = (run(scenario_of(SEED, lasts_s=5.0), settings={"cluster.history.enable": "true"}) for _ in range(2))
    assert kept.anomalies == []
    assert kept.acknowledged > 0
    assert kept.digest == again.digest
    assert kept.digest != run(scenario_of(SEED, lasts_s=5.0)).digest
