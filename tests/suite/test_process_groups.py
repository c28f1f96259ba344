"""What `make test` rests on: pytest-xdist keeps the tests of a group in one process."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow
TESTS = """
import os
import pathlib
import pytest

@pytest.mark.parametrize("number", range(12))
def test_door(number):
    with open("pids", "a") as file:
        print(os.getpid(), file=file)
"""
MARKS = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group("doors"))
"""


@pytest.mark.parametrize(("marks", "processes"), [(MARKS, 1), ("", 2)], ids=["a group", "no group"])
def test_tests_of_a_group_run_in_one_process(pytester: pytest.Pytester, marks: str, processes: int) -> None:
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\ntestpaths = ['.']\n")
    pytester.makeconftest(marks)
    pytester.makepyfile(TESTS)

    result = pytester.runpytest_subprocess(
        "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "-p", "no:sparklog"
    )

    result.assert_outcomes(passed=12)
    assert len(set((pytester.path / "pids").read_text().split())) == processes
