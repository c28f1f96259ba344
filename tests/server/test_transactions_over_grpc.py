"""The service Transactions for gRPC clients: answers and errors of each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import admin_pb2, groups_pb2, groups_pb2_grpc, log_pb2, transactions_pb2, transactions_pb2_grpc
from support.logs.builders import batch
from support.patience import wait_until

STRANGER = 987_654


def error_of(answer: Any) -> str:
    """The name of the message's error; empty without one."""
    return answer.error.name if answer.HasField("error") else ""


@dataclass
class World:
    """A broker with a topic, and one producer with a transactional id."""

    client: Any
    topic: str
    transactional_id: str
    producer_id: int = -1
    producer_epoch: int = -1

    def __post_init__(self) -> None:
        self.calls = transactions_pb2_grpc.TransactionsStub(self.client.channel)
        self.groups = groups_pb2_grpc.GroupsStub(self.client.channel)
        self.find(self.transactional_id)
        self.begin()

    def settled(self, ask: Callable[[], Any]) -> Any:
        """The first answer after the end of the former transaction."""

        def attempt() -> Any:
            answer = ask()
            return None if error_of(answer) == "CONCURRENT_TRANSACTIONS" else answer

        return wait_until(attempt, "the former transaction has ended")

    def find(self, *ids: str) -> Any:
        request = transactions_pb2.FindTransactionCoordinatorRequest(transactional_ids=ids)
        return self.calls.FindCoordinator(request).coordinators

    def begin(self) -> None:
        request = log_pb2.InitProducerIdRequest(transactional_id=self.transactional_id)
        made = self.settled(lambda: self.client.log.InitProducerId(request))
        assert not error_of(made)
        self.producer_id, self.producer_epoch = made.producer_id, made.producer_epoch

    def produce(self, *, epoch: int | None = None, sequence: int = 0) -> str:
        data = batch(
            producer_id=self.producer_id,
            epoch=self.producer_epoch if epoch is None else epoch,
            sequence=sequence,
            transactional=True,
        )
        produced = self.settled(
            lambda: self.client.produce(self.topic, data, transactional_id=self.transactional_id, acks=log_pb2.ALL)
        )
        return error_of(produced)

    def end(self, *, commit: bool, **fields: Any) -> Any:
        given = {
            "transactional_id": self.transactional_id, "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        } | fields  # fmt: skip
        return self.settled(lambda: self.calls.EndTxn(transactions_pb2.EndTxnRequest(commit=commit, **given)))

    def commit_offset(self, group: str, *partitions: int, **member: Any) -> dict[int, str]:
        request = transactions_pb2.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id, producer_id=self.producer_id, producer_epoch=self.producer_epoch,
            group_id=group, offsets=[{"topic": self.topic, "partition": each, "offset": 5} for each in partitions],
            **member,
        )  # fmt: skip
        return {each.partition: error_of(each) for each in self.calls.TxnOffsetCommit(request).partitions}

    def committed(self, group: str) -> tuple[int, str]:
        wanted = [groups_pb2.GroupPartition(topic=self.topic, partition=0)]
        request = groups_pb2.OffsetFetchRequest(group_id=group, partitions=wanted, require_stable=True)
        [found] = self.groups.OffsetFetch(request).partitions
        return found.offset, error_of(found)

    def describe(self, *ids: str) -> Any:
        request = transactions_pb2.DescribeTransactionsRequest(transactional_ids=ids)
        return self.calls.DescribeTransactions(request).transactions

    def list(self, **filters: Any) -> Any:
        return self.calls.ListTransactions(transactions_pb2.ListTransactionsRequest(**filters))

    def producers(self, partition: int = 0) -> Any:
        wanted = [admin_pb2.PartitionId(topic=self.topic, partition=partition)]
        request = transactions_pb2.DescribeProducersRequest(partitions=wanted)
        return self.calls.DescribeProducers(request).partitions[0]

    def abort(self, **fields: Any) -> str:
        given = {
            "topic": self.topic, "partition": 0, "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch, "coordinator_epoch": 0,
        } | fields  # fmt: skip
        return error_of(self.calls.AbortTransaction(transactions_pb2.AbortTransactionRequest(**given)))

    def read(self, **fields: Any) -> Any:
        return self.client.fetch(self.topic, 0, isolation_level=log_pb2.READ_COMMITTED, **fields)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(
        auto_create_topics_enable=False, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=3
    ) as running:
        yield running


@pytest.fixture
def world(client: Any, topic: str) -> World:
    return World(client, topic, f"id-of-{topic}")


def test_this_broker_coordinates_every_id_that_is_not_too_long(world: World, broker: RunningBroker) -> None:
    one, other, long = world.find("one", "other", "x" * 40_000)
    for found in (one, other):
        assert (error_of(found), found.broker_id, found.grpc_address) == ("", 0, broker.bootstrap)
    assert (long.error.name, long.broker_id, long.grpc_address) == ("INVALID_REQUEST", -1, "")


def test_a_transaction_is_read_once_it_is_committed(world: World) -> None:
    assert world.produce() == ""
    assert (world.read().last_stable_offset, world.read(format=log_pb2.RECORDS).records.records[:]) == (0, [])

    first, again = (world.end(commit=True) for _ in range(2))

    assert error_of(first) == error_of(again) == ""
    assert (first.producer_id, first.producer_epoch) == (world.producer_id, world.producer_epoch + 1)
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, first.producer_epoch)
    wait_until(lambda: world.read().last_stable_offset == 2, "the marker is written")
    assert [each.value for each in world.read(format=log_pb2.RECORDS).records.records] == [b"value"]


def test_an_aborted_transaction_is_named_with_the_batches_and_left_out_of_the_records(world: World) -> None:
    world.produce()
    assert error_of(world.end(commit=False)) == ""
    wait_until(lambda: world.read().last_stable_offset == 2, "the marker is written")
    [aborted] = world.read().aborted_transactions
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (world.producer_id, 0, 1)
    skipped = world.read(format=log_pb2.RECORDS)
    assert (skipped.records.records[:], skipped.next_offset > 0) == ([], True)


def test_only_the_producer_ends_its_transaction(world: World) -> None:
    assert world.end(commit=True).error.name == "INVALID_TXN_STATE"  # nothing is open
    world.produce()
    assert world.end(commit=True, producer_id=STRANGER).error.name == "INVALID_PRODUCER_ID_MAPPING"
    assert world.end(commit=True, transactional_id="nobody").error.name == "INVALID_PRODUCER_ID_MAPPING"
    assert world.end(commit=True, producer_epoch=9).error.name == "PRODUCER_FENCED"
    assert world.end(commit=True, transactional_id="").error.name == "INVALID_REQUEST"


def test_a_late_request_of_a_transaction_harms_no_later_one(world: World) -> None:
    world.produce()
    before = world.producer_epoch
    world.producer_epoch = world.end(commit=True).producer_epoch
    assert world.produce() == ""
    assert world.produce(epoch=before, sequence=1) == "INVALID_PRODUCER_EPOCH"
    assert world.end(commit=True, producer_epoch=before).error.name == "PRODUCER_FENCED"
    assert world.describe(world.transactional_id)[0].state == "Ongoing"


def test_the_next_producer_with_an_id_aborts_and_fences_the_one_before(world: World) -> None:
    world.produce()
    before = world.producer_epoch
    world.begin()
    assert world.producer_epoch > before
    assert world.end(commit=True, producer_epoch=before).error.name == "PRODUCER_FENCED"
    assert [each.first_offset for each in world.read().aborted_transactions] == [0]


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_count_if_the_transaction_is_committed(world: World, *, commit: bool) -> None:
    group = f"group-of-{world.topic}"
    world.groups.FindCoordinator(groups_pb2.FindCoordinatorRequest(group_ids=[group]))
    wait_until(lambda: world.committed(group) == (-1, ""), "the group has a coordinator")
    gone = world.commit_offset(group, 0, generation=3, member_id="gone")
    assert gone == {0: "ILLEGAL_GENERATION"}
    assert world.commit_offset(group, 0, 9) == {0: "", 9: "UNKNOWN_TOPIC_OR_PARTITION"}
    assert world.committed(group) == (-1, "UNSTABLE_OFFSET_COMMIT")
    assert error_of(world.end(commit=commit)) == ""
    wait_until(lambda: world.committed(group) == (5 if commit else -1, ""), "the marker is written")


def test_ids_are_listed_by_state_producer_age_and_name(world: World) -> None:
    world.produce()

    def is_listed(**filters: Any) -> bool:
        return world.transactional_id in [each.transactional_id for each in world.list(**filters).transactions]

    assert is_listed()
    assert is_listed(states=["Ongoing"], producer_ids=[world.producer_id], id_pattern="id-of-.*", duration_ms=0)
    for none in ({"states": ["Empty"]}, {"producer_ids": [STRANGER]}, {"id_pattern": "id"}, {"duration_ms": 3_600_000}):
        assert not is_listed(**none)
    assert list(world.list(states=["Open", "Empty"]).unknown_states) == ["Open"]
    assert world.list(id_pattern="(").error.name == "INVALID_REGULAR_EXPRESSION"


def test_ids_are_described_with_the_partitions_of_their_transaction(world: World) -> None:
    idle, unknown, empty = world.describe(world.transactional_id, "nobody", "")
    assert (idle.state, idle.timeout_ms, idle.start_ms, list(idle.partitions)) == ("Empty", 60_000, -1, [])
    assert (unknown.error.name, empty.error.name) == ("TRANSACTIONAL_ID_NOT_FOUND", "INVALID_REQUEST")
    world.produce()
    [busy] = world.describe(world.transactional_id)
    assert (busy.producer_id, busy.producer_epoch) == (world.producer_id, world.producer_epoch)
    assert [(each.topic, each.partition) for each in busy.partitions] == [(world.topic, 0)]
    assert busy.start_ms > 0


def test_a_transaction_is_aborted_in_one_partition_by_an_operator(world: World) -> None:
    world.produce()
    [producer] = world.producers().producers
    assert (producer.producer_id, producer.transaction_first_offset) == (world.producer_id, 0)
    assert world.producers(9).error.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert world.abort(partition=9) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert world.abort(producer_epoch=world.producer_epoch - 1) == "INVALID_PRODUCER_EPOCH"
    assert world.abort(coordinator_epoch=9) == ""
    assert world.read().last_stable_offset == 2
    assert world.abort(coordinator_epoch=8) == "TRANSACTION_COORDINATOR_FENCED"
