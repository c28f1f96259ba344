"""kill -9 in the middle of appends, rolls, truncations, checkpoints and openings, over real files.

The page cache survives a killed process, so more must be left than after a power cut: every batch whose append has
returned.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support import environment
from support.patience import PATIENCE_S
from support.runs.seeds import seeds

Batches = dict[int, tuple[int, str]]
"""By base offset: next offset and name."""


@dataclass(slots=True)
class Judge:
    """The expected content of the log, from the output of the children."""

    batches: Batches = field(default_factory=dict)
    end: int = 0
    least_end: int = 0
    """Less than `end` while a truncation is under way."""
    start: int = 0
    most_start: int = 0
    opened: int = 0
    found: Batches = field(default_factory=dict)
    found_start: int = 0
    found_end: int = 0

    def hear(self, line: str) -> None:
        match line.split():
            case ["open", start, end]:
                self.found_start, self.found_end, self.found = int(start), int(end), {}
            case ["found", base, following, name]:
                self.found[int(base)] = int(following), name
            case ["ready"]:
                self.judge()
            case ["appended", base, following, name]:
                assert int(base) == self.end
                self.batches[int(base)] = int(following), name
                self.end = self.least_end = int(following)
            case ["truncating", offset] if int(offset) < self.end:
                self.least_end = max((base for base in self.batches if base <= int(offset)), default=int(offset))
            case ["truncated"]:
                self.batches = {base: each for base, each in self.batches.items() if base < self.least_end}
                self.end = self.least_end
            case ["retaining"]:
                self.most_start = self.end
            case ["retained", start]:
                self.start = self.most_start = int(start)

    def judge(self) -> None:
        """Compare the child's findings with the expected content; from now on they are the expected content."""
        self.opened += 1
        assert self.least_end <= self.found_end
        assert self.start <= self.found_start <= max(self.start, self.most_start)
        offset = min(self.found, default=self.found_end)
        assert offset <= self.found_start
        for base, (following, name) in self.found.items():
            assert base == offset
            assert self.batches.get(base, (following, name)) == (following, name)
            assert base in self.batches or base >= self.end
            offset = following
        assert offset == self.found_end
        unknown = [base for base in self.found if base not in self.batches]
        assert len(unknown) <= 1  # the append that was being done
        self.batches = dict(self.found)
        self.end = self.least_end = self.found_end
        self.start = self.most_start = self.found_start


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("block", seeds(1, soak=4))
def test_appended_records_survive_kills(tmp_path: Path, block: int) -> None:
    chance = random.Random(block)
    judge = Judge()
    command = [sys.executable, "-m", "support.logs.killed_writer", str(tmp_path / "logs")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment()
    ) as program:
        assert program.stdin
        assert program.stdout
        for life in range(100):
            program.stdin.write(f"{block * 1000 + life}\n")
            _follow(program.stdout, judge, lines=chance.choice((0, 1, 5, 20, 100)) + chance.randrange(30))
        program.stdin.close()
        assert program.wait(PATIENCE_S) == 0
    assert judge.opened > 50
    assert judge.end > 100


def _follow(lines_of: Iterator[str], judge: Judge, lines: int) -> None:
    """Read the output of one child, kill it after some lines, and read the rest of its output."""
    child = heard = 0
    for line in lines_of:
        heard += not line.startswith("found")
        if line.startswith("pid"):
            child = int(line.split()[1])
        elif line == "dead\n":
            return
        else:
            judge.hear(line)
        if child and heard > lines:
            os.kill(child, signal.SIGKILL)
            child = 0
    raise AssertionError("the program has ended")
