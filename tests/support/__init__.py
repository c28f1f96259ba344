"""Helpers of the tests: what several test modules share.

`support.NAME` can be imported wherever pytest runs; a program that a test starts finds it with `environment()`.
"""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
GOLDEN = TESTS / "data" / "golden"
"""Partition folders that Apache Kafka wrote, with Kafka's own dump beside each file."""
CACHE = ROOT / ".cache"
"""Where `make test` puts clients that do not come from PyPI."""


def environment() -> dict[str, str]:
    """Environment of a Python process that imports this package."""
    return {**os.environ, "PYTHONPATH": str(TESTS)}
