"""Rewritten batches are, byte for byte, those that Kafka's own cleaner writes (Cleaner, MemoryRecords.filterTo).

Where they are compressed, the records inside are: two libraries need not compress alike.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from sparklog.records.batch import BatchHeader, Codec, TimestampType, check_batch, iterate_headers
from sparklog.records.compression import LIMIT_BYTES, decompress
from sparklog.records.records import Record, write_records
from sparklog.records.rewriting import Rewriter
from sparklog.spark.compaction import task
from support.jobs.compactions import settings_of
from support.logs.transactional_log import TransactionalLog, write_randomly
from support.patience import PATIENCE_S
from support.processes.java import kafka_command
from support.runs.seeds import seeds

JAVA = Path(__file__).with_name("FilterTo.java")
CLEANER = JAVA.with_name("CleanLog.java")
NOW_MS, RETENTION_MS = 1_700_000_000_000, 86_400_000
BATCHES = 400


def log_of(rng: random.Random) -> tuple[list[bytes], list[int]]:
    """Batches of every kind, and the offsets of their records."""
    batches, offsets = [], []
    offset = 0
    for number in range(BATCHES):
        append_time = NOW_MS - rng.randrange(10**6) if number % 5 == 0 else None
        records = []
        for _ in range(rng.randint(1, 12)):
            records.append(
                Record(
                    offset=offset,
                    timestamp_ms=append_time or rng.choice([-1, 0, NOW_MS, NOW_MS - rng.randrange(10**10)]),
                    timestamp_type=TimestampType(append_time is not None),
                    key=rng.randbytes(rng.randrange(20)),
                    value=None if rng.random() < 0.2 else rng.randbytes(rng.choice([0, 5, 100, 300])),
                    headers=tuple((f"h{i}", rng.choice([None, b"value"])) for i in range(rng.choice([0, 0, 1, 3]))),
                    sequence=offset % 1000 if number % 3 else -1,
                )
            )
            offset += rng.choice([1, 1, 1, 2, 70])
        has_producer = bool(number % 3)
        batch = write_records(
            records,
            codec=Codec(number % len(Codec)),
            leader_epoch=number // 100,
            producer_id=rng.randrange(9) if has_producer else -1,
            producer_epoch=rng.randrange(3) if has_producer else -1,
            delete_horizon_ms=rng.choice([None, None, NOW_MS, NOW_MS + 1, NOW_MS - 10**6]),
            last_offset=offset - 1,
        )
        batches.append(bytes(batch))
        offsets += [record.offset for record in records]
    return batches, offsets


def opened(data: bytes) -> list[tuple[BatchHeader, bytes]]:
    """Each batch's header, without what depends on how well it was compressed, and its records."""
    result = []
    for position, header in iterate_headers(data):
        check_batch(data, position)
        body = data[position + 61 : position + header.size]
        content = bytes(decompress(header.codec, body, LIMIT_BYTES)) if header.record_count else body
        if header.codec is Codec.NONE:
            result.append((header, content))
        else:
            result.append((header._replace(batch_length=0, crc=0), content))
    return result


def test_what_kafkas_cleaner_writes_is_what_comes_out(tmp_path: Path) -> None:
    rng = random.Random(1)
    batches, offsets = log_of(rng)
    kept = [offset for offset in offsets if rng.random() < 0.5 and offset % 100 > 30]
    bases = [header.base_offset for _, header in iterate_headers(b"".join(batches)) if rng.random() < 0.3]
    last_offset = next(header.last_offset for _, header in iterate_headers(batches[-1]))

    def written(name: str, numbers: Iterable[int]) -> str:
        path = tmp_path / name
        path.write_text("".join(f"{number}\n" for number in numbers))
        return str(path)

    data = b"".join(batches)
    log, output = tmp_path / "log", tmp_path / "output"
    log.write_bytes(data)
    rules = map(str, (NOW_MS, RETENTION_MS, last_offset))
    command = kafka_command(str(JAVA), str(log), str(output), *rules, written("kept", kept), written("bases", bases))
    subprocess.run(command, timeout=PATIENCE_S, check=True)

    rewriter = Rewriter(now_ms=NOW_MS, delete_retention_ms=RETENTION_MS, keep_empty=bases, last_offset=last_offset)
    ours = opened(rewriter.rewrite(data, np.array(kept)))
    theirs = opened(output.read_bytes())
    for mine, kafkas in zip(ours, theirs, strict=True):
        assert mine == kafkas
    assert {header.record_count == 0 for header, _ in ours} == {True, False}
    assert len(ours) < BATCHES


@pytest.mark.parametrize("seed", seeds(2, soak=20))
def test_of_logs_with_transactions_each_pass_keeps_what_kafkas_cleaner_keeps(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dump_log_segments: Callable[..., str]
) -> None:
    """Between the passes, more is written, and half of delete.retention.ms passes."""
    rng = random.Random(seed)
    ours, theirs = (TransactionalLog(tmp_path / name, delete_retention_ms=RETENTION_MS) for name in ("ours", "theirs"))
    monkeypatch.setattr(task, "Maintenance", lambda **_: ours)
    producers = [0] * 6
    horizons = set()
    for number in range(5):
        now_ms = NOW_MS + number * (RETENTION_MS // 2 + 1)
        write_randomly((ours, theirs), rng, rng.choice([5, 40]), producers)
        command = kafka_command(
            str(CLEANER), str(theirs.folder), *map(str, (theirs.cleaned_offset, now_ms, RETENTION_MS))
        )
        done = subprocess.run(command, timeout=PATIENCE_S, check=True, capture_output=True, text=True)
        theirs.cleaned_offset = theirs.bases[-1]

        # Kafka knows where a producer's last batch is. A marker does not come after it, unless it bumps the epoch.
        in_active = [header for _, header in iterate_headers(ours.active)]
        behind = {each.producer_id for each in in_active if not each.is_control or each.producer_id % 2 == 0}
        known = {header.producer_id for _, header in ours.batches} - behind - {-1}
        work = ours.work(ours.describe(int(done.stdout), known), now_ms)
        assert work
        ((_, outcome),) = task.compact_in_task([work], settings_of("", now_ms=now_ms))
        assert outcome.outcome in {"compacted", "unchanged"}, outcome.reason
        assert opened(ours.content) == opened(theirs.content)
        horizons |= {
            header.delete_horizon_ms for _, header in ours.batches if header.is_control and header.delete_horizon_ms
        }
    assert len(horizons) > 1
    dumped = dump_log_segments(*sorted(ours.folder.glob("*.log")))
    assert "endTxnMarker" in dumped
    assert not re.search("corrupt|isvalid: false|out of order", dumped)
