"""Command lines, run in this process against the test's own broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.cli import run
from sparklog.testing import RunningBroker
from support.clients.command_result import CommandResult


@pytest.fixture
def sparklog(
    sparklog_broker: RunningBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    """Runs `sparklog` with these arguments."""
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", sparklog_broker.bootstrap)

    def command(*arguments: str) -> CommandResult:
        status = run(arguments)
        printed = capsys.readouterr()
        return CommandResult(status, printed.out, printed.err)

    return command
