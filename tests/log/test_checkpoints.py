"""Checkpoint files in Kafka's formats."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import (
    CleanShutdownMarker,
    CorruptCheckpoint,
    LeaderEpochCheckpoint,
    MetaProperties,
    OffsetCheckpoint,
    replace_file,
)
from sparklog.log.epochs import EpochStart, LeaderEpochs
from sparklog.log.producers.snapshots import CorruptSnapshot, ProducerEntry, read_snapshot, write_snapshot
from sparklog.testing.memory_fs import MemoryFs, PowerCut

OFFSETS = {TopicPartition("orders", 1): 0, TopicPartition("a.b_c-d", 0): 1500}


def test_offsets_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(LocalFs(), f"{tmp_path}/recovery-point-offset-checkpoint")
    checkpoint.write(OFFSETS)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n2\na.b_c-d 0 1500\norders 1 0\n"
    assert checkpoint.read() == OFFSETS


BROKEN = ("1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "x\n", "0\n", "0\n1\na b c d\n")


@pytest.mark.parametrize("content", BROKEN)
def test_a_checkpoint_that_does_not_parse_is_corrupt(tmp_path: Path, content: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(content)
    with pytest.raises(CorruptCheckpoint):
        OffsetCheckpoint(LocalFs(), str(path)).read()


@pytest.mark.parametrize("content", [None, ""])
def test_a_file_that_is_not_there_or_empty_says_nothing(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "checkpoint"
    if content is not None:
        path.write_text(content)
    assert OffsetCheckpoint(LocalFs(), str(path)).read() == {}


def test_epochs_are_written_as_kafka_writes_them(golden: Path, tmp_path: Path) -> None:
    theirs = LeaderEpochCheckpoint(LocalFs(), str(golden / "segments-0")).read()
    assert theirs == LeaderEpochs((EpochStart(0, 0),))
    LeaderEpochCheckpoint(LocalFs(), str(tmp_path)).write(theirs)
    name = "leader-epoch-checkpoint"
    assert (tmp_path / name).read_bytes() == (golden / "segments-0" / name).read_bytes()


def test_a_power_cut_leaves_the_old_checkpoint_or_the_new_one() -> None:
    for seed in range(300):
        chance = random.Random(seed)
        fs = MemoryFs()
        replace_file(fs, "/checkpoint", b"old" * 100)
        fs.cut_power_after(chance.randrange(6), chance)
        with pytest.raises(PowerCut):
            replace_file(fs, "/checkpoint", b"new" * 200)
        left = fs.crash(chance).open_read("/checkpoint")
        assert left.read_at(0, left.size) in (b"old" * 100, b"new" * 200)


def test_a_directory_names_its_owner(tmp_path: Path) -> None:
    assert MetaProperties.read(LocalFs(), str(tmp_path)) is None
    meta = MetaProperties(
        broker_id=3, cluster_id="MkU3OEVBNTcwNTJENDM2Qg", directory_id=MetaProperties.new_directory_id()
    )
    meta.write(LocalFs(), str(tmp_path))
    assert MetaProperties.read(LocalFs(), str(tmp_path)) == meta


def test_properties_of_older_brokers_are_understood(tmp_path: Path) -> None:
    lines = ["#", "#Fri Oct 25 03:33:01 UTC 2024", "broker.id=7", "version=0", "cluster.id=abc", ""]
    (tmp_path / "meta.properties").write_text("\n".join(lines))
    meta = MetaProperties.read(LocalFs(), str(tmp_path))
    assert meta == MetaProperties(broker_id=7, cluster_id="abc", directory_id="")


def test_the_marker_of_a_clean_stop_is_taken_once(tmp_path: Path) -> None:
    marker = CleanShutdownMarker(LocalFs(), str(tmp_path))
    assert not marker.remove()
    marker.write()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert marker.remove()
    assert not marker.remove()


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[1] / "data" / "golden").glob("*/*.snapshot")), ids=str)
def test_snapshots_of_producer_state_are_kafkas(path: Path) -> None:
    data = path.read_bytes()
    assert write_snapshot(read_snapshot(data)) == data


def test_a_damaged_snapshot_is_refused() -> None:
    entry = ProducerEntry(5, 0, 199, 199, 39, 1_700_000_000_000, -1, -1)
    data = write_snapshot([entry])
    assert read_snapshot(data) == [entry]
    assert entry.first_sequence == 160
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptSnapshot):
            read_snapshot(bytes(damaged))
    for size in range(10):
        with pytest.raises(CorruptSnapshot):
            read_snapshot(data[:size])
