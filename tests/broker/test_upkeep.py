"""Periodic tasks of a broker, and failed or slow disks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from sparklog.base.errors import KafkaStorageError, OffsetOutOfRange, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.broker import background_tasks
from sparklog.broker.apis import delete_records, delete_topics, describe_log_dirs, describe_topics, produce
from sparklog.records.records import Record, write_records
from support import patience

LONG_MS = 10 * patience.PATIENCE_MS
SMALL = {"internal_segment_bytes": "200"}


async def until(condition: Callable[[], bool]) -> None:
    await patience.until(condition, "the broker has done it by itself")  # nothing tells when a file is there or gone


def deleted_files(folder: str) -> set[str]:
    return {name for name in os.listdir(folder) if name.endswith(".log.deleted")}


async def test_old_segments_are_deleted_by_time_and_their_files_later(world, batch, monkeypatch) -> None:
    monkeypatch.setattr(background_tasks, "DELETE_INTERVAL_MS", 1)
    await world.start(log_retention_check_interval_ms="1")
    await world.create("t", retention_ms="1000", file_delete_delay_ms="5000", **SMALL)
    for _ in range(3):
        await world.produce("t", batch([b"x" * 100], timestamp_ms=world.clock.time_ms()))
    world.clock.advance(500)
    await world.produce("t", batch([b"y" * 100], timestamp_ms=world.clock.time_ms()))
    world.clock.advance(501)
    log = world.broker.services.replicas.get(TopicPartition("t", 0)).log
    await until(lambda: log.log_start_offset == 3)
    assert isinstance((await world.fetch("t", 2)).error, OffsetOutOfRange)
    assert (await world.fetch("t", 3)).next_offset == 4
    await until(lambda: len(deleted_files(log.folder)) == 3)
    deleted = deleted_files(log.folder)
    world.clock.advance(5001)
    await until(lambda: not deleted & deleted_files(log.folder))


async def test_old_segments_are_deleted_by_size(world, batch) -> None:
    await world.start(log_retention_check_interval_ms="1")
    await world.create("t", retention_bytes="450", **SMALL)
    for _ in range(6):
        await world.produce("t", batch([b"x" * 80]))
    log = world.broker.services.replicas.get(TopicPartition("t", 0)).log
    await until(lambda: log.log_start_offset > 0)
    await until(lambda: log.size_bytes < 450 + 200)


async def test_a_deleted_topics_files_are_deleted_later(world, batch, monkeypatch) -> None:
    monkeypatch.setattr(background_tasks, "DELETE_INTERVAL_MS", 1)
    await world.start(auto_create_topics_enable="false")
    await world.create("t", file_delete_delay_ms="1000")
    await world.produce("t", batch([b"x"]))
    await world.broker.serve(
        delete_topics.API, delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name="t")])
    )
    assert isinstance((await world.produce("t", batch([b"x"]))).error, UnknownTopicOrPartition)
    assert [name for name in os.listdir(world.folder) if name.endswith("-delete")]
    world.clock.advance(1001)
    await until(lambda: not [name for name in os.listdir(world.folder) if name.endswith("-delete")])


async def test_the_flusher_flushes_when_flush_ms_has_passed(world, batch) -> None:
    await world.start(log_flush_scheduler_interval_ms="1")
    await world.create("t", flush_ms="100")
    await world.produce("t", batch([b"x"]))
    log = world.broker.services.replicas.get(TopicPartition("t", 0)).log
    assert log.recovery_point == 0
    world.clock.advance(101)
    await until(lambda: log.recovery_point == 1)


async def test_recovery_points_are_written_on_schedule(world, batch) -> None:
    await world.start(log_flush_offset_checkpoint_interval_ms="1")
    await world.create("t", flush_messages="1")
    await world.produce("t", batch([b"x", b"y"]))
    checkpoint = Path(world.folder, "recovery-point-offset-checkpoint")
    await until(lambda: "t 0 2" in checkpoint.read_text())


async def test_only_produces_with_flush_messages_wait_for_the_disk(world, batch) -> None:
    await world.start()
    await world.create("careful", flush_messages="1")
    await world.create("quick")
    world.fs.may_flush.clear()
    waiting = [asyncio.create_task(world.produce("careful", batch([b"x"]))) for _ in range(3)]
    for number in range(100):
        assert (await world.produce("quick", batch([b"y"]))).base_offset == number
    assert not any(task.done() for task in waiting)
    world.fs.may_flush.set()
    assert [(await task).base_offset for task in waiting] == [0, 1, 2]
    log = world.broker.services.replicas.get(TopicPartition("careful", 0)).log
    assert log.recovery_point == 3


async def test_unflushed_records_are_not_served(world, batch) -> None:
    """A power cut could lose it, and another record could get its offset."""
    await world.start()
    await world.create("careful", flush_messages="1")
    world.fs.may_flush.clear()
    writing = asyncio.create_task(world.produce("careful", batch([b"x"])))
    reading = asyncio.create_task(world.fetch("careful", 0, max_wait_ms=LONG_MS))
    log = world.broker.services.replicas.get(TopicPartition("careful", 0)).log
    await until(lambda: log.log_end_offset == 1)
    shown = await world.fetch("careful", 0)
    world.fs.may_flush.set()
    assert (shown.slice, shown.high_watermark) == (None, 0)
    assert (await writing).base_offset == 0
    async with asyncio.timeout(patience.PATIENCE_S):
        assert (await reading).high_watermark == 1


async def test_flushed_records_are_served_though_their_producer_has_disconnected(world, batch) -> None:
    await world.start()
    await world.create("careful", partitions=2, flush_messages="1")
    world.fs.may_flush.clear()
    parts = [produce.PartitionProduce(topic="careful", partition=number, data=batch([b"x"])) for number in (0, 1)]
    writing = asyncio.create_task(world.broker.serve(produce.API, produce.ProduceRequest(partitions=parts)))
    logs = [world.broker.services.replicas.get(TopicPartition("careful", number)).log for number in (0, 1)]
    await until(lambda: [log.log_end_offset for log in logs] == [1, 1])
    reading = [asyncio.create_task(world.fetch("careful", 0, number, max_wait_ms=LONG_MS)) for number in (0, 1)]
    await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait([writing])
    world.fs.may_flush.set()
    async with asyncio.timeout(patience.PATIENCE_S):
        assert [(await each).high_watermark for each in reading] == [1, 1]


async def test_a_failed_directory_takes_only_its_own_partitions_offline(world, batch, tmp_path: Path) -> None:
    good, bad = str(tmp_path / "good"), str(tmp_path / "bad")
    await world.start(log_dirs=f"{good},{bad}")
    await world.create("t", partitions=4)
    homes = {
        replica.partition.name.partition: os.path.dirname(replica.log.folder)
        for replica in world.broker.services.replicas
    }
    assert sorted(homes.values()) == [bad, bad, good, good]
    lost = [number for number, home in homes.items() if home == bad]
    kept = [number for number, home in homes.items() if home == good]
    waiting = asyncio.create_task(world.fetch("t", 0, lost[1], max_wait_ms=LONG_MS))
    await asyncio.sleep(0)
    world.fs.broken = bad
    assert isinstance((await world.produce("t", batch([b"x"]), lost[0])).error, KafkaStorageError)
    async with asyncio.timeout(patience.PATIENCE_S):
        assert isinstance((await waiting).error, KafkaStorageError)
    for number in lost:
        assert isinstance((await world.produce("t", batch([b"x"]), number)).error, KafkaStorageError)
        assert isinstance((await world.fetch("t", 0, number)).error, KafkaStorageError)
    for number in kept:
        assert (await world.produce("t", batch([b"x"]), number)).base_offset == 0
    dirs = await world.broker.serve(describe_log_dirs.API, describe_log_dirs.DescribeLogDirsRequest())
    assert {each.path: each.error is None for each in dirs.log_dirs} == {good: True, bad: False}
    request = describe_topics.DescribeTopicsRequest(names=["t"])
    topic = (await world.broker.serve(describe_topics.API, request)).topics[0]
    assert [part.partition for part in topic.partitions if part.error] == lost
    assert all(topic.partitions[number].leader == -1 for number in lost)


async def test_a_broker_starts_without_its_failed_directory(world, batch, tmp_path: Path) -> None:
    good, bad = str(tmp_path / "good"), str(tmp_path / "bad")
    await world.start(log_dirs=f"{good},{bad}")
    await world.create("t", partitions=2)
    for number in range(2):
        await world.produce("t", batch([b"x"]), number)
    homes = {
        replica.partition.name.partition: os.path.dirname(replica.log.folder)
        for replica in world.broker.services.replicas
    }
    await world.broker.stop()
    world.fs.broken = bad
    await world.start(log_dirs=f"{good},{bad}")
    for number, home in homes.items():
        result = await world.fetch("t", 0, number)
        assert result.next_offset == (1 if home == good else 0)
        assert isinstance(result.error, KafkaStorageError if home == bad else type(None))


async def test_records_below_the_log_start_stay_away_after_a_restart(world, batch) -> None:
    await world.start()
    await world.create("t")
    await world.produce("t", batch([b"x", b"y", b"z"]))
    part = delete_records.RecordsToDelete(topic="t", partition=0, before_offset=2)
    await world.broker.serve(delete_records.API, delete_records.DeleteRecordsRequest(partitions=[part]))
    await world.broker.stop()
    await world.start()
    assert isinstance((await world.fetch("t", 1)).error, OffsetOutOfRange)
    assert (await world.fetch("t", 2)).log_start_offset == 2


async def test_each_start_is_a_new_leader_epoch(world, batch) -> None:
    await world.start()
    await world.create("t")
    seen = []
    for _ in range(3):
        await world.produce("t", batch([b"x"]))
        seen.append(world.broker.services.replicas.get(TopicPartition("t", 0)).partition.leader_epoch)
        await world.broker.stop()
        await world.start()
    assert seen == sorted(set(seen))
    log = world.broker.services.replicas.get(TopicPartition("t", 0)).log
    assert [entry.epoch for entry in log.epochs.entries] == seen


async def test_high_watermarks_are_those_of_the_partitions_there_are(world, batch) -> None:
    await world.start(replica_high_watermark_checkpoint_interval_ms="1")
    checkpoint = Path(world.folder, "replication-offset-checkpoint")
    await world.create("t")
    await world.produce("t", batch([b"x", b"y"]))
    await until(lambda: checkpoint.exists() and checkpoint.read_text() == "0\n1\nt 0 2\n")
    await world.broker.serve(
        delete_topics.API, delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name="t")])
    )
    await until(lambda: checkpoint.read_text() == "0\n0\n")


async def test_states_of_silent_producers_expire(world) -> None:
    await world.start(producer_id_expiration_ms="1000", producer_id_expiration_check_interval_ms="1")
    await world.create("t")
    record = Record(offset=0, timestamp_ms=world.clock.time_ms(), value=b"v", sequence=0)
    await world.produce("t", write_records([record], producer_id=3, producer_epoch=0))
    log = world.broker.services.replicas.get(TopicPartition("t", 0)).log
    world.clock.advance(999)
    await world.produce("t", write_records([record], producer_id=4, producer_epoch=0))
    assert log.producers.keys() == {3, 4}
    world.clock.advance(1)
    await until(lambda: log.producers.keys() == {4})
