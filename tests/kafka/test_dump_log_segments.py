"""Apache Kafka's own DumpLogSegments reads what sparklog wrote: logs, indexes and snapshots, without a complaint."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparklog.base.clock import SystemClock
from sparklog.base.fs import LocalFs
from sparklog.base.topic_config import TopicConfig
from sparklog.log.log import Log
from sparklog.records import arrow
from sparklog.records.batch import Codec
from sparklog.records.rewriting import Rewriter

COMPLAINTS = re.compile(
    r"mismatch|isvalid: false|out of order|Found timestamp|non-consecutive|does not match|Indexed offset|corrupt|Error",
    re.IGNORECASE,
)
BATCHES, RECORDS_PER_BATCH = 300, 10
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of several segments, with every codec, null keys and values, headers, and timestamps that jump."""
    folder = tmp_path_factory.mktemp("logs") / "judged-0"
    folder.mkdir()
    config = TopicConfig(internal_segment_bytes=32_000, index_interval_bytes=1024)
    log = Log.open(LocalFs(), str(folder), config, SystemClock(), clean=True)
    for number in range(BATCHES):
        first = number * RECORDS_PER_BATCH
        offsets = range(first, first + RECORDS_PER_BATCH)
        table = pa.table(
            {
                "key": pa.array([None if i % 7 == 0 else b"key-%d" % i for i in offsets], pa.binary()),
                "value": pa.array([None if i % 11 == 0 else b"value-%d " % i * 8 for i in offsets], pa.binary()),
                "headers": pa.array([[("h", b"%d" % i)] if i % 3 else [] for i in offsets], arrow.HEADERS_TYPE),
                "timestamp": pa.array([FIRST_MS + i * 10 - 500 * (i % 13 == 0) for i in offsets], pa.int64()),
            }
        )
        numbers = {"producer_id": 41, "producer_epoch": 0, "base_sequence": number // 3 * RECORDS_PER_BATCH}
        batch = arrow.encode(
            table,
            default_timestamp_ms=FIRST_MS,
            codec=Codec(number % len(Codec)),
            **({} if number % 3 else numbers),
        )
        log.append(batch, leader_epoch=number // 100)
    log.flush()
    log.close()
    return folder


def test_every_record_is_dumped_with_its_offset_and_key(folder: Path, dump_log_segments: Callable[..., str]) -> None:
    dumped = dump_log_segments(*sorted(folder.glob("*.log")), options=("--deep-iteration", "--print-data-log"))

    assert not COMPLAINTS.search(dumped), COMPLAINTS.search(dumped)
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)]
    assert offsets == list(range(BATCHES * RECORDS_PER_BATCH))
    assert dumped.count("isvalid: true") == BATCHES
    assert "key: key-2999 payload: value-2999 value-2999" in dumped
    assert len(list(folder.glob("*.log"))) > 3


def test_indexes_pass_the_sanity_check_and_agree_with_the_log(
    folder: Path, dump_log_segments: Callable[..., str]
) -> None:
    indexes = [*sorted(folder.glob("*.index")), *sorted(folder.glob("*.timeindex"))]

    dumped = dump_log_segments(*indexes, options=())
    checked = dump_log_segments(*indexes, options=("--index-sanity-check",))

    assert not COMPLAINTS.search(dumped), dumped
    assert len(re.findall(r"^offset: \d+ position: \d+$", dumped, re.MULTILINE)) > 50
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", dumped, re.MULTILINE)) > 50
    assert checked.count("passed sanity check.") == len(indexes)


def test_compacted_segments_are_read(folder: Path, tmp_path: Path, dump_log_segments: Callable[..., str]) -> None:
    kept = np.arange(3, BATCHES * RECORDS_PER_BATCH - 40, 7)
    rewriter = Rewriter(now_ms=2 * FIRST_MS, delete_retention_ms=1, keep_empty={30, 60, 2980}, last_offset=2999)
    compacted = tmp_path / "compacted-0" / "00000000000000000000.log"
    compacted.parent.mkdir()
    compacted.write_bytes(b"".join(rewriter.rewrite(path.read_bytes(), kept) for path in sorted(folder.glob("*.log"))))

    dumped = dump_log_segments(compacted, options=("--deep-iteration", "--print-data-log"))

    # The tool finds every offset that compaction has taken out worth a word, at the end.
    dumped = re.sub(r"^Non-consecutive offsets in .*\n(  \d+ is followed by \d+\n)+", "", dumped, flags=re.MULTILINE)
    assert not COMPLAINTS.search(dumped), COMPLAINTS.search(dumped)
    assert [int(it) for it in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)] == kept.tolist()
    assert f"deleteHorizonMs: OptionalLong[{2 * FIRST_MS + 1}]" in dumped
    headers = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) count: 0 ", dumped, re.MULTILINE)
    assert headers == [("2980", "2989"), ("2990", "2999")]
    assert "key: key-3 payload: value-3 value-3" in dumped


def test_producer_snapshots_are_read(folder: Path, dump_log_segments: Callable[..., str]) -> None:
    snapshots = sorted(folder.glob("*.snapshot"))

    dumped = dump_log_segments(*snapshots, options=())

    assert snapshots
    assert dumped.count("Dumping ") == len(snapshots)
    written = [range(0, int(path.stem) // RECORDS_PER_BATCH, 3) for path in snapshots]
    assert dumped.count("producerId: 41 producerEpoch: 0 ") == sum(min(5, len(each)) for each in written)
    assert "firstSequence: 990 lastSequence: 999 lastOffset: 2979 offsetDelta: 9 " in dumped
    assert not COMPLAINTS.search(dumped), dumped
