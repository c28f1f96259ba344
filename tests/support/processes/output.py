"""What processes that tests start print."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from support.patience import PATIENCE_MS, PATIENCE_S


def first_line(process: subprocess.Popen[str]) -> str:
    """The first line of standard output; empty where the process ends, or hangs, without one."""
    assert process.stdout
    saying = select.poll()
    saying.register(process.stdout)
    return process.stdout.readline() if saying.poll(PATIENCE_MS) else ""


def run(
    command: list[str],
    *,
    given: str | None = None,
    together: bool = False,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    patience_s: float = 2 * PATIENCE_S,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with this on its standard input; fails where it hangs, with what it has printed.

    With `together` what it complains of is between the lines of its standard output. Time-outs that a program is given
    with PATIENCE_S come before `patience_s`, and say more. A program that hangs ends with all that it has started.
    """
    complaints = subprocess.STDOUT if together else subprocess.PIPE
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True,
        cwd=folder, env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(given, timeout=patience_s)
        except subprocess.TimeoutExpired:
            end_group(process)
            out, err = process.communicate()
            raise AssertionError(f"{command} does not end\n{out}\n{err}") from None
        except BaseException:
            end_group(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def end_group(leader: subprocess.Popen[str]) -> None:
    """Kill the process that began a group, and those of the group that are left."""
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
