"""Objects that a full garbage collection of a broker with much state visits."""

from __future__ import annotations

import subprocess
import sys

STATE_IS_LOADED = """
import gc
from sparklog.server import garbage

garbage.freeze_long_lived()
[freezer] = gc.callbacks
freezer._long_s = {long_s}
before = gc.get_freeze_count()
state = [[number] for number in range(100_000)]
gc.collect()
looked_at = len(gc.get_objects())
assert (looked_at < 50_000) == {is_frozen}, looked_at
assert (gc.get_freeze_count() - before >= 100_000) == {is_frozen}
del state
assert gc.get_freeze_count() - before < 50_000  # frozen objects are freed, too
gc.collect(0), gc.collect(1)
"""


def run(**values: object) -> None:
    subprocess.run([sys.executable, "-c", STATE_IS_LOADED.format(**values)], check=True)


def test_state_that_survives_a_long_collection_is_not_looked_at_again() -> None:
    run(long_s=0, is_frozen=True)


def test_what_survives_a_short_one_is() -> None:
    run(long_s=1_000, is_frozen=False)
