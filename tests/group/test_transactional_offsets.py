"""Offsets that are committed in transactions (KIP-98, KIP-447)."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.base.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    OffsetMetadataTooLarge,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.group import offsets as offsets_module
from sparklog.group.loader import load
from sparklog.group.pending_offsets import size_of
from sparklog.group.requests import DeleteGroups, OffsetDelete, OffsetFetch, OffsetToCommit, TxnOffsetCommit
from sparklog.log.log import Log
from sparklog.offsets_topic import records as kinds
from sparklog.offsets_topic.records import CoordinatorRecord, OffsetKey, OffsetValue
from sparklog.runtime.state_machine import Decision, ProducerIdAndEpoch
from sparklog.testing import SimClock
from support.groups.transactions import HELD, TransactionalWorld, fetch, in_transaction, orders

DAY_MS = 86_400_000
LATER_MS = 8 * DAY_MS
"""After offsets.retention.minutes."""


@pytest.fixture
def world() -> TransactionalWorld:
    return TransactionalWorld()


def shown(world: TransactionalWorld) -> list[dict[int, int]]:
    """Return the commits of g in this coordinator and in one that loads the log, each without and with `stable`."""
    return [fetch(shard, "g", stable=stable) for shard in (world.shard, world.load()) for stable in (False, True)]


# What a transaction decides


def test_offsets_take_effect_with_the_commit_of_their_transaction(world: TransactionalWorld) -> None:
    world.commit("g", 0, 5)
    world.commit_in_transaction(7, "g", 0, 6)
    world.commit_in_transaction(7, "g", 1, 9)
    assert shown(world) == [{0: 5}, {0: HELD, 1: HELD}] * 2

    world.mark(7, is_commit=True)

    assert shown(world) == [{0: 6, 1: 9}] * 4


def test_offsets_of_an_aborted_transaction_have_no_effect(world: TransactionalWorld) -> None:
    world.commit("g", 0, 5)
    world.commit_in_transaction(7, "g", 0, 6)
    world.commit_in_transaction(7, "g", 1, 9)

    world.mark(7, is_commit=False)

    assert shown(world) == [{0: 5}] * 4


def test_a_marker_ends_the_transaction_of_its_producer_only(world: TransactionalWorld) -> None:
    world.commit_in_transaction(7, "g", 0, 6)
    world.commit_in_transaction(8, "g", 1, 9)

    world.mark(7, is_commit=True)

    assert shown(world) == [{0: 6}, {0: 6, 1: HELD}] * 2


def test_a_second_marker_changes_nothing(world: TransactionalWorld) -> None:
    world.commit_in_transaction(7, "g", 0, 6)
    world.mark(7, is_commit=True)
    world.commit("g", 0, 8)

    world.mark(7, is_commit=True)
    world.mark(7, is_commit=False)

    assert shown(world) == [{0: 8}] * 4


def test_a_commit_after_that_of_the_transaction_stays(world: TransactionalWorld) -> None:
    world.commit_in_transaction(7, "g", 0, 6)
    world.commit("g", 0, 8)

    world.mark(7, is_commit=True)

    assert shown(world) == [{0: 8}] * 4


@pytest.mark.parametrize("first", [7, 8])
def test_of_two_transactions_the_last_commit_in_the_log_counts_whichever_ends_first(
    world: TransactionalWorld, first: int
) -> None:
    world.commit_in_transaction(7, "g", 0, 1)
    world.commit_in_transaction(8, "g", 0, 2)

    world.mark(first, is_commit=True)
    world.mark(15 - first, is_commit=True)

    assert shown(world) == [{0: 2}] * 4


def test_an_abort_leaves_what_an_older_transaction_committed_pending(world: TransactionalWorld) -> None:
    world.commit_in_transaction(7, "g", 0, 1)
    world.commit_in_transaction(8, "g", 0, 2)
    world.mark(8, is_commit=False)
    assert shown(world) == [{}, {0: HELD}] * 2

    world.mark(7, is_commit=True)

    assert shown(world) == [{0: 1}] * 4


def test_the_last_commit_of_a_transaction_counts(world: TransactionalWorld) -> None:
    world.commit_in_transaction(7, "g", 0, 1)
    world.commit_in_transaction(8, "g", 0, 2)
    world.commit_in_transaction(7, "g", 0, 3)

    world.mark(7, is_commit=True)

    assert shown(world) == [{0: 3}] * 4


def test_the_records_are_one_batch_of_the_producer(world: TransactionalWorld) -> None:
    request = in_transaction(7, "g", {0: 1, 1: 2}, producer_epoch=3)

    decision = world.shard.commit_in_transaction(request, world.now_ms)

    assert decision.producer == ProducerIdAndEpoch(7, 3)
    assert len(decision.records) == 2
    assert world.shard.commit(in_transaction(7, "g", {0: 1}), world.now_ms).producer is None


# Offsets that are returned


def test_a_transaction_takes_effect_once_its_marker_is_committed_in_the_log(world: TransactionalWorld) -> None:
    """Until then, a member that takes the partition over must get neither the old offset nor one that may be lost."""
    world.commit("g", 0, 5)
    world.commit_in_transaction(7, "g", 0, 6)
    world.is_held = True

    world.mark(7, is_commit=True)

    assert fetch(world.shard, "g") == {0: 5}
    assert fetch(world.shard, "g", stable=True) == {0: HELD}
    world.release()
    assert fetch(world.shard, "g") == fetch(world.shard, "g", stable=True) == {0: 6}


def test_an_abort_is_shown_once_its_marker_is_committed_in_the_log(world: TransactionalWorld) -> None:
    world.commit("g", 0, 5)
    world.commit_in_transaction(7, "g", 0, 6)
    world.is_held = True

    world.mark(7, is_commit=False)

    assert fetch(world.shard, "g", stable=True) == {0: HELD}
    world.release()
    assert fetch(world.shard, "g", stable=True) == {0: 5}


def test_a_stable_fetch_does_not_show_an_offset_that_an_uncommitted_record_replaces(world: TransactionalWorld) -> None:
    world.commit("g", 0, 5)
    world.commit("g", 1, 5)
    world.is_held = True
    world.commit("g", 0, 6)

    assert fetch(world.shard, "g") == {0: 5, 1: 5}
    assert fetch(world.shard, "g", stable=True) == {0: HELD, 1: 5}


def test_a_stable_fetch_tells_of_each_partition(world: TransactionalWorld) -> None:
    world.commit("g", 0, 5)
    world.commit_in_transaction(7, "g", 1, 6)
    world.commit_in_transaction(7, "other", 0, 6)

    answer = world.shard.fetch_offsets(
        OffsetFetch(group_id="g", partitions=[orders(0), orders(1), orders(2)], require_stable=True)
    )

    assert [each.offset for each in answer.offsets] == [5, -1, -1]
    assert [type(each.error) for each in answer.offsets] == [type(None), UnstableOffsetCommit, type(None)]


# Who may commit


def with_classic_group(world: TransactionalWorld) -> None:
    member = kinds.MemberMetadata(
        member_id="m", group_instance_id="i", client_id="c", client_host="/h", rebalance_timeout_ms=1,
        session_timeout_ms=1, subscription=b"", assignment=b"",
    )  # fmt: skip
    value = kinds.GroupValue(protocol_type="p", generation=4, protocol="x", leader="m", members=[member])
    world.shard.replay(CoordinatorRecord(kinds.GroupKey(group_id="g"), value))


def with_consumer_group(world: TransactionalWorld) -> None:
    described = kinds.ConsumerMemberValue(instance_id="i", client_id="c", client_host="/h", rebalance_timeout_ms=1)
    current = kinds.CurrentAssignmentValue(
        member_epoch=4, previous_member_epoch=3, state=0, assigned_partitions=(), partitions_pending_revocation=()
    )
    who = {"group_id": "g", "member_id": "m"}
    for record in (
        CoordinatorRecord(kinds.ConsumerMemberKey(**who), described),
        CoordinatorRecord(kinds.ConsumerGroupKey(group_id="g"), kinds.ConsumerGroupValue(epoch=4)),
        CoordinatorRecord(kinds.CurrentAssignmentKey(**who), current),
    ):
        world.shard.replay(record)


MEMBER = {"member_id": "m", "generation_or_epoch": 4}
WHO = [
    (MEMBER, None),
    ({**MEMBER, "group_instance_id": "i"}, None),
    ({}, None),  # older clients name no member
    ({**MEMBER, "generation_or_epoch": 3}, IllegalGeneration),
    ({**MEMBER, "generation_or_epoch": 5}, IllegalGeneration),
    ({**MEMBER, "member_id": "n"}, UnknownMemberId),
    ({"member_id": "n", "generation_or_epoch": 4, "group_instance_id": "i"}, FencedInstanceId),
    ({"member_id": "n"}, UnknownMemberId),
]


@pytest.mark.parametrize("kind", ["classic", "consumer"])
@pytest.mark.parametrize(("fields", "error"), WHO)
def test_a_member_commits_in_its_generation_only(
    world: TransactionalWorld, kind: str, fields: dict[str, object], error: type[KafkaError] | None
) -> None:
    (with_classic_group if kind == "classic" else with_consumer_group)(world)
    if kind == "consumer" and error is FencedInstanceId:
        error = UnknownMemberId  # as in Kafka, the member id is looked for first
    request = in_transaction(7, "g", {0: 1}, **fields)

    if error is None:
        assert len(world.shard.commit_in_transaction(request, 1).records) == 1
    else:
        with pytest.raises(error):
            world.shard.commit_in_transaction(request, 1)


def test_a_group_that_does_not_exist_has_no_generation(world: TransactionalWorld) -> None:
    with pytest.raises(IllegalGeneration):
        world.shard.commit_in_transaction(in_transaction(7, "g", {0: 1}, **MEMBER), 1)

    world.commit_in_transaction(7, "g", 0, 1)

    assert world.shard.groups["g"].state_name == world.load().groups["g"].state_name == "Empty"


def test_a_partition_is_refused_alone(world: TransactionalWorld) -> None:
    request = TxnOffsetCommit(
        group_id="g", transactional_id="t", producer_id=7, producer_epoch=0,
        offsets=[
            OffsetToCommit(partition=orders(0), offset=1),
            OffsetToCommit(partition=orders(4), offset=1),
            OffsetToCommit(partition=TopicPartition("none", 0), offset=1),
            OffsetToCommit(partition=orders(1), offset=1, metadata="x" * 4097),
        ],
    )  # fmt: skip

    decision = world.shard.commit_in_transaction(request, 1)

    assert decision.response is not None
    assert [type(error) for error in decision.response.errors.values()] == [
        type(None), UnknownTopicOrPartition, UnknownTopicOrPartition, OffsetMetadataTooLarge,
    ]  # fmt: skip
    assert len(decision.records) == 1


def test_pending_offsets_have_a_bound(world: TransactionalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets_module, "MOST_PENDING_BYTES", 3 * size_of(""))
    for partition in range(3):
        world.commit_in_transaction(7, "g", partition, 1)
    with pytest.raises(CoordinatorNotAvailable, match="too many offsets"):
        world.commit_in_transaction(8, "g", 3, 1)

    world.commit("g", 3, 1)  # takes no such room
    world.mark(7, is_commit=True)

    world.commit_in_transaction(8, "g", 3, 1)
    assert world.shard.offsets.pending.size_bytes == size_of("")


# Deletion and expiry


def carry_out(world: TransactionalWorld, decision: Decision[CoordinatorRecord, object]) -> None:
    world.carry_out(decision)
    assert fetch(world.load(), "g", stable=True) == fetch(world.shard, "g", stable=True)


def test_an_offset_does_not_expire_while_a_transaction_may_change_it(world: TransactionalWorld) -> None:
    world.commit("g", 0, 5)
    world.commit("g", 1, 5)
    world.commit_in_transaction(7, "g", 0, 6)

    carry_out(world, world.shard.expire(LATER_MS))
    assert fetch(world.shard, "g") == {0: 5}

    world.mark(7, is_commit=False)
    carry_out(world, world.shard.expire(LATER_MS))
    assert "g" not in world.shard.groups


def test_a_group_does_not_expire_while_it_waits_for_a_transaction(world: TransactionalWorld) -> None:
    world.commit_in_transaction(7, "g", 0, 6)

    carry_out(world, world.shard.expire(LATER_MS))

    world.mark(7, is_commit=True)
    assert shown(world) == [{0: 6}] * 4


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_group_is_deleted_with_what_waits_for_a_transaction(world: TransactionalWorld, *, is_commit: bool) -> None:
    world.commit("g", 0, 5)
    world.commit_in_transaction(7, "g", 0, 6)
    world.commit_in_transaction(7, "g", 1, 6)
    world.commit_in_transaction(7, "other", 1, 6)

    carry_out(world, world.shard.delete(DeleteGroups(group_ids=["g"])))
    world.mark(7, is_commit=is_commit)

    assert [*world.shard.groups] == [*world.load().groups] == ["other"]
    assert fetch(world.shard, "other") == ({1: 6} if is_commit else {})


def test_a_group_with_many_pending_offsets_is_deleted_in_several_steps(
    world: TransactionalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_module, "MOST_REMOVED", 3)
    for partition in range(4):
        world.commit_in_transaction(7, "g", partition, 6)

    first = world.shard.delete(DeleteGroups(group_ids=["g"]))
    world.carry_out(first)
    second = world.shard.delete(DeleteGroups(group_ids=["g"]))
    world.carry_out(second)

    assert [len(each.response.errors) for each in (first, second) if each.response] == [0, 1]
    assert "g" not in world.shard.groups
    assert world.shard.offsets.pending.size_bytes == 0


def test_a_pending_offset_is_deleted_by_request(world: TransactionalWorld) -> None:
    world.commit("g", 0, 5)
    world.commit_in_transaction(7, "g", 1, 6)
    world.commit_in_transaction(7, "g", 2, 6)

    carry_out(world, world.shard.delete_offsets(OffsetDelete(group_id="g", partitions=[orders(1)])))
    world.mark(7, is_commit=True)

    assert shown(world) == [{0: 5, 2: 6}] * 4


def test_a_pending_offset_of_a_deleted_topic_does_not_come_to_its_successor(world: TransactionalWorld) -> None:
    world.commit_in_transaction(7, "g", 0, 6)
    old = world.topics.find("orders").topic_id
    world.topics.put("orders", 4, generation=1)

    assert fetch(world.shard, "g", stable=True) == {}
    world.carry_out(world.shard.delete_topics({"orders": old}))
    world.commit_in_transaction(8, "g", 1, 2)
    world.mark(7, is_commit=True)
    world.mark(8, is_commit=True)

    assert shown(world) == [{1: 2}] * 4


def test_a_pending_offset_of_a_predecessor_that_was_not_deleted_is_not_shown(world: TransactionalWorld) -> None:
    world.commit_in_transaction(7, "g", 0, 6)
    world.topics.put("orders", 4, generation=1)
    world.mark(7, is_commit=True)
    assert shown(world) == [{}] * 4

    world.carry_out(world.shard.delete_of_others())

    assert not world.shard.offsets.of("g")


def test_the_end_of_a_topic_leaves_a_pending_offset_of_its_successor(world: TransactionalWorld) -> None:
    old = world.topics.find("orders").topic_id
    world.commit("g", 0, 5)
    world.topics.put("orders", 4, generation=1)
    world.commit_in_transaction(7, "g", 0, 6)

    world.carry_out(world.shard.delete_topics({"orders": old}))
    world.mark(7, is_commit=True)

    assert shown(world) == [{0: 6}] * 4


# Loading


def test_a_transaction_that_is_open_at_a_failover_ends_at_the_next_coordinator(world: TransactionalWorld) -> None:
    world.commit("g", 0, 5)
    world.commit_in_transaction(7, "g", 0, 6)
    world.move()
    assert fetch(world.shard, "g", stable=True) == {0: HELD}

    world.mark(7, is_commit=True)

    assert shown(world) == [{0: 6}] * 4


def test_a_snapshot_that_cuts_an_open_transaction_is_not_used(
    world: TransactionalWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.commit("g", 1, 5)
    world.commit_in_transaction(7, "g", 0, 6)
    world.commit("g", 2, 5)
    world.log.offset_snapshots.install(world.log.offset_snapshots.begin(3))  # as if nothing had ever been committed

    assert fetch(world.load(), "g", stable=True) == {0: HELD, 1: 5, 2: 5}
    assert "is not used: a transaction has been open since 1" in caplog.text


def test_a_snapshot_below_an_open_transaction_is_used(world: TransactionalWorld) -> None:
    world.commit("g", 1, 5)
    world.commit_in_transaction(7, "g", 0, 6)
    world.log.offset_snapshots.install(world.log.offset_snapshots.begin(1))

    shard, read = load(world.log, 2, world.new_shard, lambda: True)

    assert read.snapshot is not None
    assert fetch(shard, "g", stable=True) == {0: HELD}


def test_kafka_s_transactional_commit_is_pending_up_to_kafka_s_marker(golden: Path, tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    folder.mkdir()
    name = "00000000000000000000.log"
    (folder / name).write_bytes((golden / "__consumer_offsets-0" / name).read_bytes())
    log = Log.open(LocalFs(), str(folder), TopicConfig(), SimClock(), clean=False)
    world = TransactionalWorld()
    world.topics.put("codec-none", 1)
    asked = OffsetFetch(group_id="g-txn", require_stable=True)

    (before,), (after,) = (
        load(log, end_offset, world.new_shard, lambda: True)[0].fetch_offsets(asked).offsets for end_offset in (1, 2)
    )

    assert isinstance(before.error, UnstableOffsetCommit)
    assert (after.error, after.offset) == (None, 77)


def test_a_tombstone_without_a_group_is_replayed(world: TransactionalWorld) -> None:
    """Compaction may have removed the deleted value."""
    key = OffsetKey(group_id="g", topic="orders", partition=0)
    world.carry_out(Decision(records=[CoordinatorRecord(key)]))
    value = OffsetValue(offset=3, commit_timestamp_ms=1)
    world.carry_out(Decision(records=[CoordinatorRecord(key, value)], producer=ProducerIdAndEpoch(7, 0)))
    world.mark(7, is_commit=True)
    assert shown(world) == [{0: 3}] * 4
