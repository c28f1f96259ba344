"""Says which tests failed once and then passed (a pytest plugin; `--reruns 1` runs a failed test again).

Just before pytest's closing line stands `FLAKY test: first failure in one line` for each of them; what pytest says of
that failure, output and log lines included, is kept in `.cache/flaky/`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from support import CACHE


class FlakyTests:
    """Collects reports of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._first_failures: dict[str, pytest.TestReport] = {}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "rerun":  # type: ignore[comparison-overlap]  # from pytest-rerunfailures
            self._first_failures.setdefault(report.nodeid, report)
        elif report.failed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # the outermost: what it writes comes after all other summaries
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, None, None]:
        yield
        for test, report in self._first_failures.items():
            if test not in self._failed:
                self._keep(test, report)
                terminalreporter.write_line(f"FLAKY {test}: {in_one_line(report)}", yellow=True)

    def _keep(self, test: str, report: pytest.TestReport) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        sections = [f"---- {title} ----\n{text}" for title, text in report.sections]
        name = re.sub(r"[^\w.-]+", "-", test)[-200:]
        (self._folder / f"{name}.txt").write_text("\n".join([test, report.when, report.longreprtext, *sections]) + "\n")


def in_one_line(report: pytest.TestReport) -> str:
    """The failure's message, up to its first line break."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines() or ["no message"]
    return str(lines[0] if crash else lines[-1])


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(FlakyTests(CACHE / "flaky"), "sparklog-flaky")
