"""kill -9 at every step of a replacement, over real files: the folder has the old segments or the new one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.base.fs import LocalFs
from sparklog.log.reader import LogReader
from support import environment
from support.logs.builders import check_indexes, open_log, read_all
from support.logs.replacements import even, records_in
from support.patience import PATIENCE_S

OLD = list(range(48))
NEW = [offset for offset in OLD if offset >= 36 or offset < 9 or even(offset // 3 * 3)]


@pytest.mark.slow
def test_a_kill_at_any_step_leaves_the_old_segments_or_the_new_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.logs.killed_replacement", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
        env=environment(),
    )
    *killed, last = done.stdout.splitlines()
    assert last == f"done {len(killed)}"
    assert len(killed) > 15
    outcomes = [find(f"{tmp_path}/{step}/orders-0") for step in range(len(killed) + 1)]
    assert not outcomes[0]
    assert outcomes == sorted(outcomes), "what is in force stays so"
    assert outcomes[-1]


def find(folder: str) -> bool:
    """Read the folder unopened, then open it; return whether the segments had been replaced."""
    reader = LogReader(LocalFs(), folder)
    unopened: list[int] = []
    for part in reader.cut(0, 48, 5):
        for chunk in reader.read(part, 400):
            unopened += [offset for offset in records_in(chunk) if part.offset_from <= offset < part.offset_to]
    assert unopened in (OLD, NEW)
    log = open_log(LocalFs(), folder, clean=False)
    found = records_in(read_all(log))
    assert found in (OLD, NEW)
    assert log.log_end_offset == 48
    assert not [path.name for path in Path(folder).iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
    check_indexes(log)
    log.close()
    return found == NEW
