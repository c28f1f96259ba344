"""Tests on a loop of virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from sparklog.testing.sim.loop import SimLoop


def simulated(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on such a loop; what fails in a callback fails the test."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        loop = SimLoop()
        loop.run(test(*args, **kwargs))
        assert not loop.errors

    return run
