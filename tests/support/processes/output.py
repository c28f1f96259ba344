"""What processes that tests start print."""

from __future__ import annotations

import select
import subprocess

from support.patience import PATIENCE_MS, PATIENCE_S


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line of standard output; empty where the process ends, or hangs, without one."""
    assert process.stdout
    saying = select.poll()
    saying.register(process.stdout)
    return process.stdout.readline() if saying.poll(PATIENCE_MS) else ""


def run(command: list[str], *, given: str | None = None, together: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with this on its standard input; fails where it hangs, with what it has printed.

    With `together` what it complains of is between the lines of its standard output.
    """
    complaints = subprocess.STDOUT if together else subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True
    ) as process:
        try:
            # Time-outs that a program is given with PATIENCE_S come first, and say more.
            out, err = process.communicate(given, timeout=2 * PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"{command} does not end\n{out}\n{err}") from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)
