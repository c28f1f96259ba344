"""Simulated processes that were killed leave coroutines that never run; Python says so when it frees them."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

KILLED = "coroutine .* was never awaited"


FOLDER = str(Path(__file__).parent)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(FOLDER):
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{KILLED}:RuntimeWarning"))


@pytest.fixture(autouse=True)
def _free_killed_coroutines() -> Iterator[None]:
    """Before the next test, whose fault they would look like."""
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", KILLED, RuntimeWarning)
        gc.collect()
