"""Command lines, run in this process against a broker of the test's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ended import Ended

from sparklog.cli import run
from sparklog.testing import RunningBroker


@pytest.fixture
def sparklog(
    sparklog_broker: RunningBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """Runs `sparklog` with some arguments."""
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", sparklog_broker.bootstrap)

    def command(*arguments: str) -> Ended:
        status = run(arguments)
        printed = capsys.readouterr()
        return Ended(status, printed.out, printed.err)

    return command
