"""A broker's replicas: requests of the controller, fetches of followers, and a store that may not respond."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from uuid import UUID

import pytest

from sparklog.base.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RequestTimedOut,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.partition_states import ISR_CHANGES
from sparklog.replica.messages import LEADER_EPOCH_DURING_DELETE, StopPartition, StopReplica
from support.logs.builders import batch
from support.replicas.replica_host import LAG_MS, ME, NAME, Host, run

SOON_S = 0.05

# Requests of the controller


def test_a_broker_leads_and_follows_what_it_is_told_to() -> None:
    async def test(host: Host) -> None:
        with pytest.raises(NotLeaderOrFollower):
            host.replicas.get(NAME)
        await host.become(1, 0)
        assert host.replicas.get_leader(NAME) is host.replica
        await host.become(2, 1)
        with pytest.raises(NotLeaderOrFollower, match="but 2"):
            host.replicas.get_leader(NAME)
        assert host.fetchers.followed[NAME].leader == 2
        await host.become(1, 2)
        assert not host.fetchers.followed
        assert host.leaderships == [(True, 0), (False, 1), (True, 2)]

    run(test)


def test_a_partition_that_the_cluster_does_not_have_is_unknown() -> None:
    async def test(host: Host) -> None:
        with pytest.raises(UnknownTopicOrPartition):
            host.replicas.get_leader(TopicPartition("nowhere", 0))

    run(test)


def test_the_same_request_again_changes_nothing() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        host.fetched(2, 0)
        await host.tell(1, 0, (1, 2, 3), 0)
        assert host.replica.partition.followers[2].log_end_offset == 0
        assert host.leaderships == [(True, 0)]

    run(test)


@pytest.mark.parametrize("first", [ME, 2])
def test_a_leader_epoch_with_another_leader_is_refused(first: int) -> None:
    """The cluster store has lost the partition's state, and the controller takes the partition for new."""

    async def test(host: Host) -> None:
        await host.become(first, 4)
        response = await host.tell(3, 4, (3,), 9)
        assert isinstance(response.errors[NAME], FencedLeaderEpoch)
        assert (host.replica.partition.leader, host.replica.partition.leader_epoch) == (first, 4)
        assert not (await host.become(3, 5)).errors
        assert host.replica.partition.leader == 3

    run(test)


def test_requests_of_a_deposed_controller_or_for_a_former_broker_epoch_are_refused() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, controller_epoch=5)
        with pytest.raises(StaleControllerEpoch):
            await host.become(2, 1, controller_epoch=4)
        with pytest.raises(StaleBrokerEpoch):
            await host.become(2, 1, controller_epoch=5, broker_epoch=host.epochs[1] - 1)
        assert host.replicas.get_leader(NAME)

    run(test)


def test_requests_are_refused_until_the_broker_has_registered() -> None:
    """They may be meant for the process before this one, whose log had more records."""

    async def test(host: Host) -> None:
        epoch, host.own_epoch = host.own_epoch, -1
        with pytest.raises(StaleBrokerEpoch):
            await host.become(1, 0, broker_epoch=epoch)
        with pytest.raises(NotLeaderOrFollower):
            host.replicas.get_leader(NAME)
        host.own_epoch = epoch
        await host.become(1, 0, broker_epoch=epoch)
        assert host.replicas.get_leader(NAME)

    run(test)


def test_an_older_leader_epoch_is_fenced() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 4)
        response = await host.become(2, 3)
        assert isinstance(response.errors[NAME], FencedLeaderEpoch)
        stopped = await host.stop(3)
        assert isinstance(stopped.errors[NAME], FencedLeaderEpoch)
        assert host.replicas.get_leader(NAME)

    run(test)


def test_a_stopped_replica_keeps_its_log_and_a_deleted_one_does_not() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1,))
        assert host.append(3) == 3
        await host.stop(0)
        assert host.replica.log.log_end_offset == 3
        with pytest.raises(NotLeaderOrFollower):
            host.replicas.get_leader(NAME)
        await host.become(1, 1, (1,))
        assert host.append() == 4
        await host.stop(LEADER_EPOCH_DURING_DELETE, delete=True)
        with pytest.raises(NotLeaderOrFollower):
            host.replicas.get(NAME)
        assert not (await host.stop(LEADER_EPOCH_DURING_DELETE, delete=True)).errors
        await host.become(1, 0, (1,))
        assert host.replica.log.log_end_offset == 0

    run(test)


def test_a_newer_topic_of_the_name_begins_in_its_own_epochs_and_the_former_log_is_kept() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 5, (1,))
        host.append()
        response = await host.become(1, 0, (1,), topic_id=UUID(int=8))
        assert response.errors == {}
        assert host.replicas.get_leader(NAME).log.log_end_offset == 0
        assert host.append() == 1
        [former] = (name for name in host.fs.list("/data") if name.endswith("-stray"))
        assert host.fs.list(f"/data/{former}")
        assert [is_leader for is_leader, _ in host.leaderships] == [True, False, True]

    run(test)


def test_a_log_of_another_topic_of_that_name_is_not_taken() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1,))
        host.append()
        await host.replicas.close()
        host.logs.close()
        host.restart()
        response = await host.become(1, 1, (1,), topic_id=UUID(int=8))
        assert isinstance(response.errors[NAME], KafkaStorageError)
        with pytest.raises(KafkaStorageError):
            host.replicas.get_leader(NAME)

    run(test)


def test_a_topics_configuration_comes_with_it() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1,), overrides={"min.insync.replicas": "2", "retention.ms": "5"})
        assert host.replica.log.config.retention_ms == 5
        with pytest.raises(NotEnoughReplicas):
            host.replicas.append(host.replicas.get_leader(NAME), bytearray(), acks=-1)

    run(test)


def test_a_request_is_carried_out_though_the_controller_does_not_wait_for_it() -> None:
    async def test(host: Host) -> None:
        asked = asyncio.ensure_future(host.become(2, 0))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.sleep(SOON_S)
        assert asked.cancelled()
        assert host.fetchers.followed[NAME].leader == 2

    run(test)


# High watermarks


def test_a_restarted_broker_begins_with_the_high_watermark_that_it_wrote_down() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1, 2))
        assert host.append(5) == 5
        host.fetched(2, 3)
        host.state_changes.write_high_watermarks(host.state_changes.high_watermarks())
        host.logs.close()
        host.restart()
        host.state_changes.write_high_watermarks(host.state_changes.high_watermarks())  # the partition has no state yet
        await host.become(1, 1, (1, 2))
        assert host.replica.partition.high_watermark == 3
        host.fetched(2, 5)
        assert host.replica.partition.high_watermark == 5

    run(test)


def test_a_partition_that_went_during_a_look_at_all_is_neither_written_down_nor_changed() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        host.append()
        gone = host.replica
        await host.stop(LEADER_EPOCH_DURING_DELETE, delete=True)
        before = host.in_store()
        await asyncio.sleep(LAG_MS / 1000 + 1)
        found = host.state_changes.high_watermarks()
        host.state_changes.add_high_watermarks(found, [gone])
        host.replicas.shrink_isr([gone])
        await asyncio.sleep(SOON_S)
        assert not any(found.values())
        assert host.in_store() == before

    run(test)


def test_a_new_partition_does_not_inherit_the_high_watermark_of_one_that_was_deleted() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1,))
        host.append(5)
        host.state_changes.write_high_watermarks(host.state_changes.high_watermarks())
        await host.stop(LEADER_EPOCH_DURING_DELETE, delete=True)
        host.logs.close()
        host.restart()
        await host.become(1, 0, (1, 2))
        host.append(5)
        assert host.replica.partition.high_watermark == 0

    run(test)


def test_many_partitions_are_deleted_with_as_many_writes_of_checkpoints_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(host: Host) -> None:
        names = [TopicPartition("t", number) for number in range(40)]
        for name in names:
            host.logs.create(name, TopicConfig())
        host.state_changes.write_high_watermarks({"/data": dict.fromkeys(names, 0)})
        written: list[str] = []
        rename = host.fs.rename

        def count(source: str, target: str) -> None:
            written.extend([target] if target.endswith("checkpoint") else [])
            rename(source, target)

        monkeypatch.setattr(host.fs, "rename", count)
        flushed: list[str] = []
        flush = host.fs.flush_dir

        def count_flush(path: str) -> None:
            flushed.append(path)
            flush(path)

        monkeypatch.setattr(host.fs, "flush_dir", count_flush)
        stopped = tuple(
            StopPartition(name=each, leader_epoch=LEADER_EPOCH_DURING_DELETE, delete=True) for each in names
        )
        request = StopReplica(
            controller_id=1, controller_epoch=1, broker_epoch=host.epochs[ME], number=1, partitions=stopped
        )
        assert not (await host.state_changes.stop(request)).errors
        assert not list(host.logs)
        assert len(written) == len(set(written))
        assert len(flushed) < 10

    run(test)


# The in-sync replicas


def test_a_lagging_follower_leaves_the_isr_in_the_store_where_the_controller_sees_it() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        host.append()
        await asyncio.sleep(LAG_MS / 1000)
        host.fetched(2, 1)
        await asyncio.sleep(1)
        host.replicas.shrink_isr()
        assert host.replica.partition.high_watermark == 0
        await asyncio.sleep(SOON_S)
        assert host.in_store().isr == (1, 2)
        assert host.replica.partition.high_watermark == 1
        assert host.store.children(ISR_CHANGES)
        host.fetched(3, 1)
        await asyncio.sleep(SOON_S)
        assert host.in_store().isr == (1, 2, 3)
        assert (host.replicas.isr_changes.shrinks, host.replicas.isr_changes.expands) == (1, 1)

    run(test)


def test_a_stopping_broker_changes_no_isr_even_if_followers_fetch() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1, 2))
        await host.replicas.close()
        host.fetched(3, 0)
        await asyncio.sleep(SOON_S)
        assert host.replica.partition.pending
        assert host.in_store().isr == (1, 2)

    run(test)


def test_a_lost_answer_of_the_store_is_found_out() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1, 2))
        host.store.lose_next_answer()
        host.fetched(3, 0)
        await asyncio.sleep(1)
        assert host.replica.partition.in_sync_replicas == host.in_store().isr == (1, 2, 3)
        assert host.replica.partition.partition_epoch == host.in_store().version

    run(test)


def test_a_store_that_cannot_be_reached_is_asked_again_later() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        host.append()
        host.store.disconnect()
        await asyncio.sleep(LAG_MS / 1000 + 1)
        host.replicas.shrink_isr()
        await asyncio.sleep(60)
        assert host.replica.partition.high_watermark == 0
        host.store.reconnect()
        host.replicas.shrink_isr()
        await asyncio.sleep(SOON_S)
        assert host.in_store().isr == (1,)
        assert host.replica.partition.high_watermark == 1

    run(test)


def test_a_zombie_leader_can_change_nothing() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        sent = host.produce(timeout_ms=20 * LAG_MS)
        await asyncio.sleep(LAG_MS / 1000 + 1)
        host.write(2, 1, (2, 3))  # this broker does not get the change
        host.replicas.shrink_isr()
        await asyncio.sleep(60)
        host.replicas.shrink_isr()
        await asyncio.sleep(60)
        assert (host.in_store().leader, host.in_store().isr) == (2, (2, 3))
        assert host.replica.partition.high_watermark == 0
        await host.tell(2, 1, (2, 3), host.in_store().version)
        assert isinstance((await sent).error, NotLeaderOrFollower)

    run(test)


def test_an_isr_that_a_controller_wrote_meanwhile_is_taken_over() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        host.append()
        await asyncio.sleep(LAG_MS / 1000 + 1)
        host.fetched(2, 1)
        host.write(1, 0, (1, 2))
        host.replicas.shrink_isr()
        await asyncio.sleep(SOON_S)
        assert host.replica.partition.in_sync_replicas == (1, 2)
        assert host.replica.partition.high_watermark == 1

    run(test)


def test_fetches_of_an_earlier_life_of_a_follower_do_not_count() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1, 2))
        host.append()
        before = host.epochs[3]
        host.begin_life(3)
        host.fetched(3, 1, epoch=before)
        await asyncio.sleep(SOON_S)
        assert host.in_store().isr == (1, 2)
        host.fetched(3, 1)
        await asyncio.sleep(SOON_S)
        assert host.in_store().isr == (1, 2, 3)

    run(test)


def test_a_follower_that_has_died_since_it_caught_up_does_not_join() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1, 2))
        host.fetched(3, 0)
        caught_up = host.epochs[3]
        host.begin_life(3)
        host.epochs[3] = caught_up  # the controller has not sent the new epoch yet
        await asyncio.sleep(1)
        assert host.in_store().isr == host.replica.partition.in_sync_replicas == (1, 2)
        assert host.replica.partition.pending is None

    run(test)


# acks=all


def test_a_producer_is_answered_when_all_in_sync_have_its_records() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        sent = host.produce(3)
        await asyncio.sleep(SOON_S)
        host.fetched(2, 3)
        await asyncio.sleep(SOON_S)
        assert not sent.done()
        host.fetched(3, 3)
        assert (await sent).last_offset == 2

    run(test)


def test_a_producer_is_told_when_too_few_are_left_that_have_its_records() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, overrides={"min.insync.replicas": "2"})
        sent = host.produce()
        await asyncio.sleep(LAG_MS / 1000 + 1)
        host.replicas.shrink_isr()
        assert isinstance((await sent).error, NotEnoughReplicasAfterAppend)
        assert isinstance((await host.produce()).error, NotEnoughReplicas)

    run(test)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_producer_is_told_at_once_when_the_leadership_is_lost(is_deleted: bool) -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        sent = host.produce()
        await asyncio.sleep(SOON_S)
        if is_deleted:
            await host.stop(LEADER_EPOCH_DURING_DELETE, delete=True)
        else:
            await host.become(2, 1)
        assert isinstance((await sent).error, NotLeaderOrFollower)
        assert asyncio.get_running_loop().time() < 10

    run(test)


def test_a_producer_waits_no_longer_than_it_said() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        assert isinstance((await host.produce(timeout_ms=500)).error, RequestTimedOut)

    run(test)


def test_a_producer_learns_that_the_disk_has_failed() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        sent = host.produce()
        await asyncio.sleep(SOON_S)
        host.replicas.set_dir_offline("/data", "I/O error")
        assert isinstance((await sent).error, KafkaStorageError)
        assert host.replicas.offline == {NAME: "I/O error"}

    run(test)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
def test_a_log_that_could_not_be_opened_for_a_moment_is_pending_until_it_is(number: int) -> None:
    async def test(host: Host) -> None:
        host.fs.fail_under("/data", number)
        assert isinstance((await host.become(1, 0)).errors[NAME], KafkaStorageError)
        assert not (await host.stop(1)).errors  # the controller takes the replica for one on a failed disk
        assert (host.pending, host.state_changes.pending) == ([{NAME}], {NAME})
        host.fs.repair("/data")
        host.logs.tasks.check_free_space()
        assert not (await host.become(1, 2)).errors
        assert not host.state_changes.pending
        host.append()

        host.fs.fail_under("/data", number)
        assert list((await host.stop(2, delete=True)).errors) == [NAME]
        assert host.state_changes.pending == {NAME}
        host.fs.repair("/data")
        assert not (await host.stop(2, delete=True)).errors
        assert not host.state_changes.pending

    run(test)


def test_a_log_in_a_failed_directory_waits_for_a_restart_and_is_not_pending() -> None:
    async def test(host: Host) -> None:
        host.fs.fail_under("/data", errno.EIO)
        assert isinstance((await host.become(1, 0)).errors[NAME], KafkaStorageError)
        assert (host.pending, host.state_changes.pending) == ([], set())

    run(test)


@pytest.mark.parametrize("repeats", [False, True])
def test_records_are_committed_though_the_flush_that_their_producer_waited_for_has_failed(repeats: bool) -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0, (1,), overrides={"flush.messages": "1"})
        partition, data = host.replica.partition, batch(3, producer_id=7)
        host.fs.fail_under("/data", errno.EMFILE)
        append = partial(host.replicas.append, host.replicas.get_leader(NAME), acks=-1)
        assert append(bytearray(data)).must_flush
        with pytest.raises(KafkaStorageError):
            await host.replicas.flush(host.replica)
        host.fs.repair("/data")
        host.replica.log.flush()  # as on schedule
        assert partition.high_watermark == 0
        if repeats:
            assert append(bytearray(data)).is_duplicate
        else:
            host.replicas.shrink_isr()
        assert partition.high_watermark == 3

    run(test)


# DeleteRecords


def test_records_are_deleted_once_the_live_replicas_have_let_go_of_them() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        host.append(5)
        host.fetched(2, 5)
        host.fetched(3, 5)
        asked = host.delete_records(4)
        await asyncio.sleep(SOON_S)
        assert host.replica.log.log_start_offset == 4
        host.fetched(2, 5, log_start_offset=4)
        await asyncio.sleep(SOON_S)
        assert not asked.done()
        host.fetched(3, 5, log_start_offset=4)
        assert (await asked).log_start_offset == 4
        del host.epochs[3]  # dead, so the deletion does not wait for it
        asked = host.delete_records(5)
        host.fetched(2, 5, log_start_offset=4)
        await asyncio.sleep(SOON_S)
        host.fetched(2, 5, log_start_offset=5)
        assert (await asked).log_start_offset == 5

    run(test)


def test_a_refused_deletion_of_records_names_the_reason() -> None:
    async def test(host: Host) -> None:
        await host.become(1, 0)
        host.append(5)
        host.fetched(2, 5)
        host.fetched(3, 2)
        assert isinstance((await host.delete_records(3)).error, OffsetOutOfRange)
        assert isinstance((await host.delete_records(2, timeout_ms=500)).error, RequestTimedOut)
        asked = host.delete_records(-1)
        await asyncio.sleep(SOON_S)
        await host.become(2, 1)
        assert isinstance((await asked).error, NotLeaderOrFollower)

    run(test)
