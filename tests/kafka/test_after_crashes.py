"""A log whose writer was killed, and that was opened again, is a log to Apache Kafka's own tool too."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from sparklog.base.clock import SystemClock
from sparklog.base.fs import LocalFs
from sparklog.base.topic_config import TopicConfig
from sparklog.log.log import Log

CONFIG = TopicConfig(internal_segment_bytes=20_000, index_interval_bytes=512)
WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from test_after_crashes import open_log
from sparklog.records.records import Record, write_records

log = open_log(sys.argv[1])
for number in range(10**9):
    records = [Record(offset=i, timestamp_ms=number, key=b"k", value=b"v" * (number % 300)) for i in range(5)]
    log.append(write_records(records), leader_epoch=0)
    if number % 50 == 20:
        log.flush()
    if number == 300:
        print("writing", flush=True)
"""


def open_log(folder: str) -> Log:
    return Log.open(LocalFs(), folder, CONFIG, SystemClock(), clean=False)


def test_killed_three_times_the_folder_has_no_fault(tmp_path: Path, dump_log_segments: Callable[..., str]) -> None:
    folder = tmp_path / "killed-0"
    folder.mkdir()
    ends = [0]
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(folder), str(Path(__file__).parent)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            writer.kill()
        log = open_log(str(folder))
        ends.append(log.log_end_offset)
        log.close()

    logs = sorted(folder.glob("*.log"))
    indexes = [*sorted(folder.glob("*.index")), *sorted(folder.glob("*.timeindex"))]
    dumped = dump_log_segments(*logs)
    checked = dump_log_segments(*indexes, options=("--verify-index-only",))

    assert ends == sorted(set(ends))
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)]
    assert offsets == list(range(ends[-1]))
    assert not re.search(r"isvalid: false|invalid bytes|Non-consecutive", dumped)
    assert not re.search(r"[Mm]ismatch|out of order|not found", checked), checked
