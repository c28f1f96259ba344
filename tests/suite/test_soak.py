"""A soak does the same for the same seed, ends in time, and says of each failure how to see it again."""

from __future__ import annotations

import itertools
import sys

import pytest

from support.runs.soak import Work, plan, soak
from support.runs.stress import busy_cores


def work(code: str) -> Work:
    return Work(name="door", seed=7, command=(sys.executable, "-c", code))


def test_a_seed_chooses_the_same_work_in_the_same_order_and_another_seed_another() -> None:
    files = [f"tests/test_{number}.py" for number in range(10)]
    first, again, other = (list(itertools.islice(plan(files, seed), 22)) for seed in (7, 7, 8))

    assert first == again
    assert [each.name for each in first] != [each.name for each in other]
    assert {each.seed for each in first[:11]} == {7}
    assert {each.seed for each in first[11:]} == {8}
    assert len({each.name for each in first[:11]}) == 11


def test_what_fails_is_shown_with_the_command_that_does_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    works = iter([work("print('3 passed')"), work("print('it is locked'); raise SystemExit(1)")])

    done = soak(works, seconds=600, jobs=2)

    assert sorted(each.status for each in done) == [0, 1]
    shown = capsys.readouterr().out
    assert "passed  seed 7  door: 3 passed" in shown
    assert "failed  seed 7  door: it is locked" in shown
    assert f"again: SPARKLOG_SOAK_SEED=7 {sys.executable} -c " in shown


def test_nothing_is_begun_when_the_time_is_over() -> None:
    done = soak(itertools.repeat(work("")), seconds=0, jobs=2)

    assert len(done) == 2


def test_busy_loops_end_with_their_block() -> None:
    with busy_cores(2) as loops:
        assert [loop.poll() for loop in loops] == [None, None]
    assert all(loop.poll() is not None for loop in loops)
