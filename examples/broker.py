"""A broker for the duration of a script: `sparklog up` in its own process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SPARKLOG = Path(sys.executable).with_name("sparklog")


@contextmanager
def running_broker(data_dir: Path, log_file: Path) -> Iterator[str]:
    """Start a broker on a free port, yield its address, and stop it cleanly at the end, even after an error."""
    command = [str(SPARKLOG), "up", "--data-dir", str(data_dir), "--grpc", "127.0.0.1:0", "--kafka", "none"]
    with log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
    try:
        yield address_from(process, log_file)
    finally:
        process.terminate()
        process.wait(timeout=30)


def address_from(process: subprocess.Popen[str], log_file: Path) -> str:
    """Return the address from the broker's line about its start."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if "ready: grpc " not in line:
        raise SystemExit(f"the broker did not start; see {log_file}")
    return line.partition("ready: grpc ")[2].partition(",")[0]
