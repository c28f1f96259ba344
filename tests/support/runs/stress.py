"""Tests again and again while the machine is busy: `make stress TESTS="tests/cli tests/clients" TIMES=20`.

A busy loop runs for each core, so that tests have half of the machine or less. Each test runs TIMES times in a row; one
failure fails the run, and nothing runs a second time because it failed. Further arguments go to pytest.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

LOOP = """
import os
parent = os.getppid()
while os.getppid() == parent: pass
"""


@contextlib.contextmanager
def busy_cores(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """`count` processes that do nothing as fast as they can, until the end of the block or of this process."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(count)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    times, *arguments = sys.argv[1:]
    repeated = ("--count", times, "--reruns", "0")
    with busy_cores(os.cpu_count() or 1):
        return subprocess.run([sys.executable, "-m", "pytest", "-q", *repeated, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
