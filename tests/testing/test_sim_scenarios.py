"""Scenarios in words (tests/testing/scenarios). SPARKLOG_REWRITE=1 writes what comes of them; review it as a diff."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparklog.testing.sim_scenario import play

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text()
    outcome = play(text)
    if os.environ.get("SPARKLOG_REWRITE"):
        path.write_text(outcome)
    assert outcome == path.read_text()
