"""From the same batches, sparklog writes the same files as Apache Kafka, byte for byte.

Snapshots of producers have more entries than Kafka's: these are compared as Kafka reads them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.base.fs import LocalFs
from sparklog.log.files import LEADER_EPOCHS, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX
from sparklog.log.producers.snapshots import read_snapshot, write_snapshot
from sparklog.records.batch import iterate_headers
from support import GOLDEN
from support.logs.builders import open_log, topic_config

DEFAULTS = {"index_interval_bytes": 4096, "internal_segment_bytes": 16384}
DENSE = DEFAULTS | {"index_interval_bytes": 1024}
FOLDERS = {
    "codec-none-0": DEFAULTS,
    "codec-gzip-0": DEFAULTS,
    "codec-snappy-0": DEFAULTS,
    "codec-lz4-0": DEFAULTS,
    "codec-zstd-0": DEFAULTS,
    "idempotent-0": DEFAULTS,
    "transactional-0": DEFAULTS,
    "__consumer_offsets-0": DEFAULTS,
    "__transaction_state-0": DEFAULTS,
    "segments-0": DENSE,
    "compacted-before-0": DENSE,
}
"""With the configuration that Kafka had. compacted-0 is left out: its files were written by Kafka's cleaner."""


@pytest.mark.parametrize("name", FOLDERS)
def test_the_same_batches_give_the_same_files(name: str, tmp_path: Path) -> None:
    log = open_log(LocalFs(), f"{tmp_path}/{name}", config=topic_config(**FOLDERS[name]))
    for segment in sorted((GOLDEN / name).glob("*.log")):
        data = segment.read_bytes()
        for position, header in iterate_headers(data):
            log.as_follower.append(data[position : position + header.size])
    log.close()

    endings = (LOG, OFFSET_INDEX, TIME_INDEX, SNAPSHOT, LEADER_EPOCHS)  # no index of aborted transactions is made
    assert _files(tmp_path / name, *endings) == _files(GOLDEN / name, *endings)


@pytest.mark.parametrize("name", ["segments-0", "compacted-before-0", "codec-lz4-0", "idempotent-0", "transactional-0"])
def test_recovery_builds_the_same_indexes_and_states_of_producers(name: str, tmp_path: Path) -> None:
    for path in (GOLDEN / name).glob("*.log"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / path.name).write_bytes(path.read_bytes())

    log = open_log(LocalFs(), f"{tmp_path}/{name}", config=topic_config(**FOLDERS[name]), clean=False)
    log.close()

    ours, theirs = (_files(folder / name, LOG, OFFSET_INDEX, TIME_INDEX) for folder in (tmp_path, GOLDEN))
    assert ours == theirs
    ours, theirs = (_files(folder / name, SNAPSHOT) for folder in (tmp_path, GOLDEN))
    last = max(theirs)
    assert ours[last] == theirs[last]


def _files(folder: Path, *endings: str) -> dict[str, bytes]:
    """Contents by name."""
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name.endswith(endings)}
    return {name: _as_kafka_reads(data) if name.endswith(SNAPSHOT) else data for name, data in found.items()}


def _as_kafka_reads(snapshot: bytes) -> bytes:
    """A snapshot with the last entry of each producer."""
    return write_snapshot({entry.producer_id: entry for entry in read_snapshot(snapshot)}.values())
