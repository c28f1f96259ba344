"""Power cuts: whatever was acknowledged as flushed is there afterwards, and the directory opens (invariant 4)."""

from __future__ import annotations

import pytest

from support.logs.crash_model import Life


@pytest.mark.parametrize("seed", range(40))
def test_what_was_flushed_survives_power_cuts(seed: int) -> None:
    Life(seed).live(crashes=4)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_what_was_flushed_survives_thousands_of_power_cuts(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        Life(1000 + seed).live(crashes=4)
