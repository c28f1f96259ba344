"""Simulated runs: the same everywhere, and failing runs that say how to see them again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SEEDS = 3
DIGESTS = f"""
from sparklog.testing.sim_run import run, scenario_of
for seed in range({SEEDS}):
    verdict = run(scenario_of(seed))
    print(seed, verdict.digest, verdict.steps, verdict.anomalies)
"""


@pytest.mark.slow
def test_a_seed_does_the_same_in_every_process_whatever_its_hash_seed() -> None:
    def output(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        return done.stdout

    first = output("0")
    assert len(first.splitlines()) == SEEDS
    assert output("1") == first
    assert output("4242") == first
