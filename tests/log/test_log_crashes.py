"""Power cuts: acknowledged flushed records are there afterwards, and the directory opens (invariant 4)."""

from __future__ import annotations

import pytest

from support.logs.crash_model import Life
from support.runs.seeds import seeds


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(80, soak=1_000))
def test_flushed_records_survive_power_cuts(seed: int) -> None:
    Life(seed).live(crashes=4)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(80, soak=1_000))
def test_flushed_records_survive_power_cuts_during_moves(seed: int) -> None:
    Life(seed, dirs=("/a", "/b", "/c")).live(crashes=8)
