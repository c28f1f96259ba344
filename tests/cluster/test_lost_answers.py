"""A simulated cluster whose store often loses the answers to writes."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from sparklog.base.errors import ConnectionLoss
from sparklog.cluster.memory import MemoryStore
from sparklog.cluster.store import Operation
from sparklog.testing.sim.faults import FaultKind, Nemesis, Plan
from sparklog.testing.sim.run import run
from sparklog.testing.sim.seed import scenario_of

pytestmark = pytest.mark.slow
CHANCE_OF_LOSS = 0.25


@pytest.mark.parametrize("seed", range(90_000, 90_004))
def test_lost_answers_of_the_store_lose_no_records(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    is_lossy, lost = False, 0
    multi, carry_out = MemoryStore.multi, Nemesis.run

    def lossy_multi(self: MemoryStore, operations: Iterable[Operation]) -> None:
        nonlocal lost
        multi(self, operations)
        if is_lossy and chance.random() < CHANCE_OF_LOSS:
            lost += 1
            raise ConnectionLoss("the answer was lost")

    async def lossy_run(self: Nemesis, plan: Plan) -> None:
        nonlocal is_lossy
        is_lossy = True
        await carry_out(self, plan)
        is_lossy = False

    monkeypatch.setattr(MemoryStore, "multi", lossy_multi)
    monkeypatch.setattr(Nemesis, "run", lossy_run)
    verdict = run(
        scenario_of(seed, brokers=3, kinds=[FaultKind.EXPIRE, FaultKind.CUT_STORE, FaultKind.KILL, FaultKind.PAUSE])
    )
    assert verdict.anomalies == []
    assert verdict.acknowledged > 0
    assert lost > 0
