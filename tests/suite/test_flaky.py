"""A test that fails once and then passes is named, and what it said is kept; one that fails twice is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import ROOT

pytestmark = pytest.mark.slow

PLUGINS = """
import pathlib
from support.runs import flaky

def pytest_configure(config):
    config.pluginmanager.register(flaky.FlakyTests(pathlib.Path(config.rootpath) / "kept"), "here")
"""
FAILS_ONCE = """
import pathlib

def test_door(request):
    print("what it printed")
    marker = pathlib.Path(request.config.rootpath) / "once"
    if not marker.exists():
        marker.touch()
        raise ValueError("the first time\\nand more of it")
"""
FAILS = "def test_lock(): assert False"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'tests'}")
    pytester.makeconftest(PLUGINS)
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\ntestpaths = ['.']\n")

    def run(**modules: str) -> pytest.RunResult:
        pytester.makepyfile(**modules)
        return pytester.runpytest_subprocess("--reruns", "1", "-p", "no:cacheprovider", "-p", "no:sparklog")

    return run


def kept(pytester: pytest.Pytester) -> list[Path]:
    return sorted((pytester.path / "kept").glob("*"))


def test_it_is_named_just_before_the_closing_line_and_the_run_passes(run, pytester: pytest.Pytester) -> None:
    result = run(test_door=FAILS_ONCE)

    assert result.ret == pytest.ExitCode.OK
    assert result.outlines[-2] == "FLAKY test_door.py::test_door: ValueError: the first time"
    assert "1 passed, 1 rerun" in result.outlines[-1]
    [file] = kept(pytester)
    assert "and more of it" in file.read_text()
    assert "what it printed" in file.read_text()


def test_what_fails_twice_fails_the_run_and_is_not_called_flaky(run, pytester: pytest.Pytester) -> None:
    result = run(test_lock=FAILS)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "FLAKY" not in result.stdout.str()
    assert not kept(pytester)
