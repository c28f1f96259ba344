"""How a test plays the texts of a folder: `scenario_texts` finds them, the fixture `check_scenario` compares them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

CheckScenario = Callable[[Path, Callable[[str], str]], None]
"""Plays the text of a file, and fails where its outcomes differ from those in the file."""


def scenario_texts(test_module: str) -> pytest.MarkDecorator:
    """The test's `path` is each of the texts in `scenarios` beside its module."""
    texts = sorted((Path(test_module).parent / "scenarios").glob("*.txt"))
    return pytest.mark.parametrize("path", texts, ids=lambda path: path.stem)
