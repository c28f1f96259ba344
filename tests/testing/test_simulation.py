"""Simulated runs: the same everywhere; a failing run prints the command that repeats it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import pytest

from sparklog.controller import outbox
from sparklog.replica.partition import Partition
from sparklog.testing.sim.command import describe, shrink
from sparklog.testing.sim.faults import FaultKind
from sparklog.testing.sim.run import run
from sparklog.testing.sim.seed import scenario_of
from support.runs.seeds import seeds

SEEDS = 1
DIGESTS = f"""
from sparklog.testing.sim.run import run
from sparklog.testing.sim.seed import scenario_of
for seed in range({SEEDS}):
    verdict = run(scenario_of(seed, lasts_s=4.0))
    print(seed, verdict.digest, verdict.steps, verdict.anomalies)
"""


@pytest.mark.slow
def test_a_seed_does_the_same_in_every_process_whatever_its_hash_seed() -> None:
    def output(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    first = output("0")
    assert len(first.splitlines()) == SEEDS
    assert output("4242") == first


@pytest.mark.slow
@pytest.mark.soak
def test_clusters_that_lose_nothing() -> None:
    for seed in seeds(3, soak=20):
        verdict = run(scenario_of(seed))
        assert verdict.anomalies == [], describe(verdict)
        assert verdict.acknowledged > 0


@pytest.mark.slow
@pytest.mark.soak
def test_clusters_whose_controller_says_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_REQUEST_BYTES", 600)
    for seed in seeds(2, soak=20):
        verdict = run(scenario_of(seed))
        assert verdict.anomalies == [], describe(verdict)
        assert verdict.acknowledged > 0


@pytest.mark.slow
@pytest.mark.soak
def test_clusters_whose_store_is_emptied_under_them() -> None:
    kinds = [FaultKind.EMPTIED_STORE, FaultKind.ISOLATE, FaultKind.RESTART]
    for seed in seeds(2, soak=20):
        scenario = scenario_of(seed, kinds=kinds)
        verdict = run(dataclasses.replace(scenario, is_unclean=False, administers=False, moves=False))
        assert verdict.anomalies == [], describe(verdict)
        assert verdict.acknowledged > 0


@pytest.mark.slow
def test_a_process_that_gave_up_its_start_holds_no_lock() -> None:
    verdict = run(scenario_of(75138))  # a start finds an emptied store, and the next one follows the last fault
    assert verdict.anomalies == [], describe(verdict)


@pytest.mark.slow
def test_a_folder_of_a_deleted_topic_may_stay_though_nobody_was_told_of_the_deletion() -> None:
    verdict = run(
        scenario_of(76044)
    )  # the answers to a broker and to the client are lost, and the controller is killed
    assert verdict.anomalies == [], describe(verdict)


@pytest.mark.slow
@pytest.mark.soak
def test_one_broker_that_is_killed_again_and_again() -> None:
    for seed in seeds(2, soak=20):
        verdict = run(scenario_of(seed, brokers=1, kinds=[FaultKind.KILL, FaultKind.RESTART]))
        assert verdict.anomalies == [], describe(verdict)


@pytest.mark.slow
def test_what_failed_is_told_so_that_it_can_be_seen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "_choose_counted", lambda self: setattr(self, "_counted", ()))
    scenarios = (
        scenario_of(seed, kinds=[FaultKind.KILL, FaultKind.PAUSE]) for seed in range(3, 60)
    )  # 3 has few faults
    verdict = next(verdict for scenario in scenarios if (verdict := run(scenario)).anomalies)
    text = describe(verdict)
    assert str(verdict.anomalies[0]) in text
    assert f"--seed {verdict.scenario.seed} " in text
    assert run(verdict.scenario).digest == verdict.digest
    assert len(shrink(verdict.scenario).plan) <= len(verdict.scenario.plan)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        ([FaultKind.KILL, FaultKind.ISOLATE], {"members": 3, "offsets_min_insync_replicas": 2}),
        ([FaultKind.POWER, FaultKind.KILL, FaultKind.ISOLATE, FaultKind.EXPIRE], {"flushes": True, "members": 2}),
        ([FaultKind.KILL, FaultKind.ISOLATE, FaultKind.EXPIRE], {"is_unclean": True, "min_insync_replicas": 1}),
        ([FaultKind.PAUSE, FaultKind.ISOLATE], {"trims": True, "retention_bytes": 3_000}),
        ([FaultKind.DISK, FaultKind.KILL], {"disks": 2}),
        ([FaultKind.POWER], {"brokers": 5, "flushes": False}),
    ],
    ids=str,
)
def test_clusters_that_have_more_to_do(kinds: list[FaultKind], chosen: dict[str, Any]) -> None:
    for seed in (4, *seeds(0, soak=5)):  # in 4, offsets were lost that a coordinator had acknowledged and not flushed
        verdict = run(dataclasses.replace(scenario_of(seed, kinds=kinds, brokers=chosen.get("brokers")), **chosen))
        assert verdict.anomalies == [], describe(verdict)
