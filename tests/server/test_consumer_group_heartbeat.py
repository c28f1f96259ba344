"""A member of a group over gRPC without encoded bytes: the coordinator assigns (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import confluent_kafka
import grpc
import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import groups_pb2
from sparklog.v1.groups_pb2_grpc import GroupsStub
from support.names import unique
from support.patience import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True, group_consumer_heartbeat_interval_ms=100, offsets_topic_num_partitions=3) as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = unique("assigned")
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    return name


@pytest.fixture
def groups(broker: RunningBroker) -> Iterator[GroupsStub]:
    with grpc.insecure_channel(broker.bootstrap) as channel:
        yield GroupsStub(channel)


class Member:
    """A member that reports its partitions, and reads the assigned ones."""

    def __init__(self, groups: GroupsStub, group_id: str, **subscription: object) -> None:
        self._groups = groups
        self._subscription = subscription
        self.group_id = group_id
        self.member_id = str(uuid4())
        self.epoch = 0
        self.owned: list[TopicPartition] = []
        self.interval_ms = 0

    def beat(self) -> str:
        """Send one heartbeat; returns the error's name."""
        answer = self._groups.ConsumerGroupHeartbeat(
            groups_pb2.ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=self.epoch,
                owned=[{"topic": item.topic, "partition": item.partition} for item in self.owned],
                **self._subscription,
            )
        )
        if not answer.HasField("error"):
            self.epoch, self.interval_ms = answer.member_epoch, answer.heartbeat_interval_ms
            self.owned = [TopicPartition(item.topic, item.partition) for item in answer.assignment]
        return answer.error.name

    def commit(self, offset: int) -> set[str]:
        """Commit all owned partitions; returns the errors' names."""
        offsets = [{"topic": item.topic, "partition": item.partition, "offset": offset} for item in self.owned]
        answer = self._groups.OffsetCommit(
            groups_pb2.OffsetCommitRequest(
                group_id=self.group_id, member_id=self.member_id, generation=self.epoch, offsets=offsets
            )
        )
        return {each.error.name for each in answer.partitions}


def beat_until(done: Callable[[], bool], *members: Member) -> None:
    def is_done_or_beat() -> bool:
        for member in members:
            assert member.beat() == ""
        return done()

    wait_until(is_done_or_beat, "the group is as the test waits for it", tell=lambda: [each.owned for each in members])


def test_two_members_share_a_topic_and_the_one_that_stays_gets_all(groups: GroupsStub, topic: str) -> None:
    one, two = (Member(groups, topic, topics=[topic]) for _ in range(2))
    beat_until(lambda: len(one.owned) == PARTITIONS, one)
    assert one.interval_ms == 100
    assert one.commit(7) == {""}

    beat_until(lambda: len(one.owned) == len(two.owned) == PARTITIONS // 2, one, two)
    assert sorted(one.owned + two.owned) == [TopicPartition(topic, number) for number in range(PARTITIONS)]

    two.epoch = -1
    assert two.beat() == ""
    beat_until(lambda: len(one.owned) == PARTITIONS, one)


def test_a_member_with_an_earlier_epoch_is_fenced_and_comes_back(groups: GroupsStub, topic: str) -> None:
    member = Member(groups, topic, topics=[topic])
    beat_until(lambda: len(member.owned) == PARTITIONS, member)
    other = Member(groups, topic, topics=[topic])
    beat_until(lambda: len(other.owned) == PARTITIONS // 2, member, other)

    member.epoch = 50
    assert member.beat() == "FENCED_MEMBER_EPOCH"
    assert member.commit(1) != {""}
    member.epoch = 0
    beat_until(lambda: len(member.owned) == len(other.owned) == PARTITIONS // 2, member, other)


def test_it_is_in_one_group_with_a_client_of_kafka(broker: RunningBroker, groups: GroupsStub, topic: str) -> None:
    member = Member(groups, topic, topic_regex=f"{topic}.*")
    beat_until(lambda: len(member.owned) == PARTITIONS, member)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": topic, "group.protocol": "consumer"}
    )
    consumer.subscribe([topic])

    def share() -> bool:
        consumer.poll(0.05)
        return len(member.owned) == len(consumer.assignment()) == PARTITIONS // 2

    beat_until(share, member)
    assert {item.partition for item in member.owned} | {item.partition for item in consumer.assignment()} == {
        0,
        1,
        2,
        3,
    }
    consumer.close()
    beat_until(lambda: len(member.owned) == PARTITIONS, member)


def test_what_makes_no_sense_is_refused(groups: GroupsStub, topic: str) -> None:
    stranger = Member(groups, topic, topics=[topic])
    stranger.epoch = 3
    assert stranger.beat() == "GROUP_ID_NOT_FOUND"
    assert Member(groups, topic, topics=[topic]).beat() == ""
    assert stranger.beat() == "UNKNOWN_MEMBER_ID"
    assert Member(groups, topic, topic_regex="(").beat() == "INVALID_REGULAR_EXPRESSION"
    assert Member(groups, topic, topics=[topic], server_assignor="mine").beat() == "UNSUPPORTED_ASSIGNOR"
    nobody = Member(groups, topic, topics=[topic])
    nobody.member_id = ""
    with pytest.raises(grpc.RpcError, match="choose one, such as a UUID"):
        nobody.beat()
