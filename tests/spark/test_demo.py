"""The demo, as a newcomer runs it; it compares what it finds with the CSV file itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.jvm
@pytest.mark.slow
def test_the_demo_ends_well_and_names_what_it_wrote(tmp_path):
    command = [sys.executable, str(EXAMPLES / "flights.py"), str(tmp_path / "output")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=5 * PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the newest values: as the CSV file says") == 2  # before and after compaction
    assert "partition 3: compacted" in done.stdout
    assert {path.name for path in (tmp_path / "output").iterdir()} == {
        "log", "broker.log", "spark.log", "delta", "checkpoint", "reports",
    }  # fmt: skip


@pytest.mark.slow
def test_the_demo_does_not_empty_a_folder_that_it_did_not_make(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    command = [sys.executable, str(EXAMPLES / "flights.py"), str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "name another folder" in done.stderr
    assert (tmp_path / "thesis.txt").exists()
