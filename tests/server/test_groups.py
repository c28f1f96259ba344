"""The service Groups for gRPC clients, through a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.base.consumer_protocol import Assignment, Subscription, write_assignment, write_subscription
from sparklog.base.ids import TopicPartition
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import admin_pb2, groups_pb2
from sparklog.v1.groups_pb2_grpc import GroupsStub
from support.patience import wait_until

CLIENT_ID = (("client-id", "tester"),)
LONG_MS = 600_000
"""Nobody's session ends, and no rebalance, because the machine stands still."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(
        group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100, offsets_topic_num_partitions=3
    ) as running:
        yield running


@pytest.fixture(scope="module")
def groups(broker: RunningBroker, client) -> GroupsStub:
    client.admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="orders", partitions=2)]))
    return GroupsStub(client.channel)


@pytest.fixture
def group_id(names: Iterator[str]) -> str:
    return f"group-of-{next(names)}"


class Member:
    """A member that does each step on request."""

    def __init__(self, groups: GroupsStub, group_id: str, **fields: object) -> None:
        self._groups = groups
        self._fields = {"session_timeout_ms": LONG_MS, "rebalance_timeout_ms": LONG_MS} | fields
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1

    def join(self) -> groups_pb2.JoinGroupResponse:
        """Join with the id of the first answer."""
        metadata = write_subscription(Subscription(topics=["orders"]))
        for _ in range(2):
            answer = self._groups.JoinGroup(
                groups_pb2.JoinGroupRequest(
                    group_id=self.group_id,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=[groups_pb2.GroupProtocol(name="range", metadata=metadata)],
                    **self._fields,
                ),
                metadata=CLIENT_ID,
            )
            self.member_id = answer.member_id or self.member_id
            if answer.error.name != "MEMBER_ID_REQUIRED":
                break
        self.generation = answer.generation
        return answer

    def sync(self, assignments: dict[str, bytes] | None = None) -> groups_pb2.SyncGroupResponse:
        pairs = [
            groups_pb2.MemberAssignment(member_id=member_id, assignment=data)
            for member_id, data in (assignments or {}).items()
        ]
        return self._groups.SyncGroup(groups_pb2.SyncGroupRequest(assignments=pairs, **self._me()))

    def heartbeat(self) -> str:
        return self._groups.Heartbeat(groups_pb2.HeartbeatRequest(**self._me())).error.name

    def commit(self, offset: int, topic: str = "orders") -> str:
        to_commit = groups_pb2.OffsetToCommit(topic=topic, partition=0, offset=offset, metadata="note")
        request = groups_pb2.OffsetCommitRequest(offsets=[to_commit], **self._me())
        return self._groups.OffsetCommit(request).partitions[0].error.name

    def leave(self) -> str:
        leaving = groups_pb2.LeavingMember(member_id=self.member_id)
        request = groups_pb2.LeaveGroupRequest(group_id=self.group_id, members=[leaving])
        return self._groups.LeaveGroup(request).members[0].error.name

    def _me(self) -> dict[str, object]:
        return {"group_id": self.group_id, "generation": self.generation, "member_id": self.member_id}


@pytest.fixture
def new_member(groups: GroupsStub, group_id: str) -> Callable[..., Member]:
    return lambda **fields: Member(groups, group_id, **fields)


def committed(groups: GroupsStub, group_id: str) -> dict[int, int]:
    answer = groups.OffsetFetch(groups_pb2.OffsetFetchRequest(group_id=group_id))
    return {part.partition: part.offset for part in answer.partitions}


ZERO = write_assignment(Assignment(partitions=[TopicPartition("orders", 0)]))
ONE = write_assignment(Assignment(partitions=[TopicPartition("orders", 1)]))


def settle(member: Member) -> groups_pb2.JoinGroupResponse:
    """Let the only member join (again) and lead, with partition 0."""
    joined = member.join()
    assert joined.leader == member.member_id
    assert member.sync({member.member_id: ZERO}).assignment == ZERO
    return joined


def together(leader: Member, other: Member) -> list[groups_pb2.JoinGroupResponse]:
    """Let a second member join the leader, and assign each a partition; returns the answers to their joins."""
    settle(leader)
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(other.join)
        wait_until(lambda: leader.heartbeat() == "REBALANCE_IN_PROGRESS", "the leader is to join again")
        answers = [leader.join(), coming.result()]
        waiting = thread.submit(other.sync)
        assert leader.sync({leader.member_id: ZERO, other.member_id: ONE}).assignment == ZERO
        assert waiting.result().assignment == ONE
    return answers


def test_the_coordinator_of_a_group_is_found(groups: GroupsStub, broker: RunningBroker) -> None:
    [found] = groups.FindCoordinator(groups_pb2.FindCoordinatorRequest(group_ids=["any"])).coordinators
    assert (found.broker_id, found.grpc_address, found.HasField("error")) == (0, broker.bootstrap, False)


def test_two_members_come_together_and_each_gets_what_the_leader_has_assigned_to_it(
    new_member: Callable[..., Member],
) -> None:
    one, two = new_member(), new_member()

    leader, follower = together(one, two)

    assert {member.member_id for member in leader.members} == {one.member_id, two.member_id}
    assert list(follower.members) == []
    assert (leader.protocol, leader.protocol_type) == ("range", "consumer")
    assert one.member_id.startswith("tester-")
    assert (one.heartbeat(), two.heartbeat()) == ("", "")


def test_who_leaves_makes_the_others_join_again(new_member: Callable[..., Member]) -> None:
    one, two = new_member(), new_member()
    together(one, two)

    assert two.leave() == ""
    assert one.heartbeat() == "REBALANCE_IN_PROGRESS"
    assert two.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert len(one.join().members) == 1


def test_a_member_of_an_earlier_generation_commits_nothing(
    new_member: Callable[..., Member], groups: GroupsStub, group_id: str
) -> None:
    zombie = new_member()
    settle(zombie)
    assert zombie.commit(5) == ""
    stale = new_member()
    stale.member_id, stale.generation = zombie.member_id, zombie.generation
    settle(zombie)

    assert stale.commit(3) == "ILLEGAL_GENERATION"
    assert zombie.leave() == ""
    assert zombie.commit(3) == "UNKNOWN_MEMBER_ID"
    assert committed(groups, group_id) == {0: 5}


def test_offsets_come_back_with_what_was_noted_beside_them(
    new_member: Callable[..., Member], groups: GroupsStub, group_id: str
) -> None:
    member = new_member()
    settle(member)
    assert member.commit(7) == ""
    assert member.commit(7, topic="nowhere") == "UNKNOWN_TOPIC_OR_PARTITION"
    wanted = [groups_pb2.GroupPartition(topic="orders", partition=number) for number in (0, 1)]

    answer = groups.OffsetFetch(groups_pb2.OffsetFetchRequest(group_id=group_id, partitions=wanted))

    assert [(part.offset, part.metadata) for part in answer.partitions] == [(7, "note"), (-1, "")]
    assert answer.partitions[0].commit_timestamp_ms > 0


def test_a_group_without_members_is_committed_for_and_forgotten_by_anybody(groups: GroupsStub, group_id: str) -> None:
    to_commit = groups_pb2.OffsetToCommit(topic="orders", partition=1, offset=4)
    request = groups_pb2.OffsetCommitRequest(group_id=group_id, offsets=[to_commit])
    assert not groups.OffsetCommit(request).partitions[0].HasField("error")
    assert committed(groups, group_id) == {1: 4}

    gone = [groups_pb2.GroupPartition(topic="orders", partition=1)]
    deleted = groups.OffsetDelete(groups_pb2.OffsetDeleteRequest(group_id=group_id, partitions=gone))
    assert not deleted.HasField("error")
    assert not deleted.partitions[0].HasField("error")
    assert committed(groups, group_id) == {}


def test_a_group_is_listed_described_and_deleted(
    new_member: Callable[..., Member], groups: GroupsStub, group_id: str
) -> None:
    member = new_member()
    settle(member)
    describe = groups_pb2.DescribeGroupsRequest(group_ids=[group_id, "nobody"])
    delete = groups_pb2.DeleteGroupsRequest(group_ids=[group_id])

    assert (group_id, "Stable", "classic") in [
        (item.group_id, item.state, item.type) for item in groups.ListGroups(groups_pb2.ListGroupsRequest()).groups
    ]
    found, nobody = groups.DescribeGroups(describe).groups
    [described] = found.members
    assert (described.client_id, described.client_host, list(described.topics)) == (
        "tester",
        "/127.0.0.1",
        ["orders"],
    )
    assert [(item.topic, item.partition) for item in described.assignment] == [("orders", 0)]
    assert nobody.error.name == "GROUP_ID_NOT_FOUND"
    assert groups.DeleteGroups(delete).groups[0].error.name == "NON_EMPTY_GROUP"

    member.leave()
    assert not groups.DeleteGroups(delete).groups[0].HasField("error")
    assert groups.DescribeGroups(describe).groups[0].state == "Dead"


def test_what_makes_no_sense_is_refused(new_member: Callable[..., Member], groups: GroupsStub) -> None:
    assert new_member(session_timeout_ms=1).join().error.name == "INVALID_SESSION_TIMEOUT"
    assert Member(groups, "").join().error.name == "INVALID_GROUP_ID"
    stranger = new_member()
    stranger.member_id, stranger.generation = "stranger", 3
    assert stranger.heartbeat() == "UNKNOWN_MEMBER_ID"
    assert stranger.sync().error.name == "UNKNOWN_MEMBER_ID"
