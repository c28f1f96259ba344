"""The group APIs over Kafka's protocol: every version of each, with one member."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.server.kafka.messages import versions_of
from support.kafka.connection import CLIENT_ID, Wire
from support.patience import PATIENCE_MS

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = range(8, 15)
DESCRIBE_GROUPS, LIST_GROUPS, CREATE_TOPICS, DELETE_TOPICS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 19, 20, 42, 47
CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 68, 69
METADATA, ASSIGNMENT = b"what it subscribes to", b"what it is given"
GROUP, SHARE = 0, 2
ALL_OPERATIONS_ON_GROUPS = 3400
LONG_MS = 600_000
"""Nobody's session ends, and no rebalance, because the machine stands still."""

NewName = Callable[[], str]


def every_version(key: int) -> pytest.MarkDecorator:
    first, last = versions_of(key)
    return pytest.mark.parametrize("version", range(first, last + 1))


@pytest.fixture
def group(new_name: NewName) -> str:
    return f"group-{new_name()}"


@pytest.fixture
def topic(wire: Wire, new_name: NewName) -> tuple[str, uuid.UUID]:
    """A topic of two partitions: its name and its id."""
    fields = {"name": new_name(), "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    (created,) = wire.send(CREATE_TOPICS, 7, topics=[fields], timeout=PATIENCE_MS).topics
    assert created.error_code is ErrorCode.none
    return created.name, created.topic_id


def send_join(wire: Wire, group: str, member_id: str, version: int, **fields: Any) -> Any:
    return wire.send(
        JOIN_GROUP,
        version,
        **{
            "group_id": group,
            "session_timeout": LONG_MS,
            "rebalance_timeout": LONG_MS,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": METADATA}],
        }
        | fields,
    )


def send_sync(wire: Wire, group: str, joined: Any, version: int) -> Any:
    return wire.send(
        SYNC_GROUP,
        version,
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": joined.member_id, "assignment": ASSIGNMENT}],
    )


def join(wire: Wire, group: str, version: int = 9) -> Any:
    """The first member's answer; the group is not synchronised yet."""
    member_id = ""
    if version >= 4:
        first = send_join(wire, group, "", version)
        assert first.error_code is ErrorCode.member_id_required
        member_id = first.member_id
    joined = send_join(wire, group, member_id, version)
    assert joined.error_code is ErrorCode.none
    return joined


def settle(wire: Wire, group: str) -> Any:
    joined = join(wire, group)
    assert send_sync(wire, group, joined, 5).error_code is ErrorCode.none
    return joined


def commit(wire: Wire, group: str, topic: tuple[str, uuid.UUID], offset: int, version: int = 9, **member: Any) -> Any:
    name, topic_id = topic
    part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": 3, "committed_metadata": "note"}
    missing = {"partition_index": 9, "committed_offset": 0, "committed_metadata": None}
    topics = [{"name": name, "topic_id": topic_id, "partitions": [part, missing]}]
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics} | member
    (found,) = wire.send(OFFSET_COMMIT, version, **fields).topics
    if version >= 10:
        assert found.topic_id == topic_id
    else:
        assert found.name == name
    known, unknown = sorted(found.partitions, key=lambda each: each.partition_index)
    assert unknown.error_code is ErrorCode.unknown_topic_or_partition
    return known.error_code


def fetched(response: Any) -> list[tuple[object, int, int, ErrorCode]]:
    """Topic, partition, offset and error of all partitions in the result of one group."""
    return [
        (getattr(topic, "name", None) or topic.topic_id, part.partition_index, part.committed_offset, part.error_code)
        for topic in response.topics
        for part in topic.partitions
    ]


@every_version(FIND_COORDINATOR)
def test_this_broker_coordinates_every_group(
    wire: Wire, kafka_address: tuple[str, int], group: str, version: int
) -> None:
    if version < 4:
        found = [wire.send(FIND_COORDINATOR, version, key=group, key_type=GROUP)]
    else:
        found = wire.send(FIND_COORDINATOR, version, key_type=GROUP, coordinator_keys=[group, "other"]).coordinators
        assert [each.key for each in found] == [group, "other"]
    for each in found:
        assert (each.error_code, each.node_id, each.host, each.port) == (ErrorCode.none, 0, *kafka_address)


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (SHARE, ErrorCode.invalid_request),
        (9, ErrorCode.invalid_request),
    ],
)
def test_nothing_else_is_coordinated(wire: Wire, key_type: int, error: ErrorCode) -> None:
    (found,) = wire.send(FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=["anything"]).coordinators
    assert (found.error_code, found.node_id, found.host, found.port) == (error, -1, "", -1)
    assert found.error_message


@every_version(JOIN_GROUP)
def test_a_member_joins_and_leads(wire: Wire, group: str, version: int) -> None:
    joined = join(wire, group, version)
    assert (joined.generation_id, joined.protocol_name, joined.leader) == (1, "range", joined.member_id)
    assert joined.member_id.startswith(CLIENT_ID)
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, METADATA)]
    if version >= 7:
        assert joined.protocol_type == "consumer"
    if version >= 9:
        assert joined.skip_assignment is False


@every_version(JOIN_GROUP)
def test_a_member_that_cannot_join_is_told_why(wire: Wire, group: str, version: int) -> None:
    unknown = send_join(wire, group, "who", version)
    assert (unknown.error_code, unknown.generation_id) == (ErrorCode.unknown_member_id, -1)
    assert not unknown.protocol_name
    assert send_join(wire, group, "", version, session_timeout=1).error_code is ErrorCode.invalid_session_timeout
    assert send_join(wire, "", "", version).error_code is ErrorCode.invalid_group_id


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_needs_no_id_and_comes_back_under_a_new_one(wire: Wire, group: str, version: int) -> None:
    first = send_join(wire, group, "", version, group_instance_id="one")
    assert (first.error_code, first.members[0].group_instance_id) == (ErrorCode.none, "one")
    assert send_sync(wire, group, first, 3).error_code is ErrorCode.none
    second = send_join(wire, group, "", version, group_instance_id="one")
    assert (second.error_code, second.generation_id) == (ErrorCode.none, 1)
    assert second.member_id != first.member_id
    if version >= 9:
        assert second.skip_assignment is True


@every_version(SYNC_GROUP)
def test_the_leader_brings_the_assignments(wire: Wire, group: str, version: int) -> None:
    joined = join(wire, group)
    synced = send_sync(wire, group, joined, version)
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, ASSIGNMENT)
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
        fields = {"group_id": group, "generation_id": 1, "member_id": joined.member_id, "assignments": []}
        assert wire.send(SYNC_GROUP, version, **fields).error_code is ErrorCode.inconsistent_group_protocol


@every_version(HEARTBEAT)
def test_a_member_is_alive(wire: Wire, group: str, version: int) -> None:
    joined = settle(wire, group)

    def beat(generation: int, member_id: str) -> ErrorCode:
        fields = {"group_id": group, "generation_id": generation, "member_id": member_id}
        return wire.send(HEARTBEAT, version, **fields).error_code

    assert beat(1, joined.member_id) is ErrorCode.none
    assert beat(7, joined.member_id) is ErrorCode.illegal_generation
    assert beat(1, "who") is ErrorCode.unknown_member_id


@every_version(LEAVE_GROUP)
def test_a_member_leaves(wire: Wire, group: str, version: int) -> None:
    member_id = settle(wire, group).member_id
    if version < 3:
        assert (
            wire.send(LEAVE_GROUP, version, group_id=group, member_id="who").error_code is ErrorCode.unknown_member_id
        )
        assert wire.send(LEAVE_GROUP, version, group_id=group, member_id=member_id).error_code is ErrorCode.none
    else:
        members = [{"member_id": member_id, "reason": "done"}, {"member_id": "who"}]
        left = wire.send(LEAVE_GROUP, version, group_id=group, members=members)
        assert left.error_code is ErrorCode.none
        assert [(member.member_id, member.error_code) for member in left.members] == [
            (member_id, ErrorCode.none),
            ("who", ErrorCode.unknown_member_id),
        ]
        missing = wire.send(LEAVE_GROUP, version, group_id="missing", members=members[1:])
        assert [member.error_code for member in missing.members] == [ErrorCode.unknown_member_id]
    (described,) = wire.send(DESCRIBE_GROUPS, 6, groups=[group], include_authorized_operations=False).groups
    assert (described.group_state, described.members) == ("Empty", ())


@every_version(OFFSET_COMMIT)
def test_offsets_are_committed(wire: Wire, group: str, topic: tuple[str, uuid.UUID], version: int) -> None:
    assert commit(wire, group, topic, 7, version, retention_time=-1) is ErrorCode.none
    (found,) = wire.send(OFFSET_FETCH, 9, groups=[{"group_id": group, "topics": None}]).groups
    (part,) = found.topics[0].partitions
    assert (part.committed_offset, part.committed_leader_epoch, part.metadata) == (7, 3 if version >= 6 else -1, "note")


@every_version(OFFSET_COMMIT)
def test_a_stranger_commits_nothing(wire: Wire, group: str, topic: tuple[str, uuid.UUID], version: int) -> None:
    joined = settle(wire, group)
    stranger = {"generation_id_or_member_epoch": 1, "member_id": "who"}
    late = {"generation_id_or_member_epoch": 0, "member_id": joined.member_id}
    member = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    assert commit(wire, group, topic, 7, version, **stranger) is ErrorCode.unknown_member_id
    assert commit(wire, group, topic, 7, version, **late) is ErrorCode.illegal_generation
    assert commit(wire, group, topic, 7, version, **member) is ErrorCode.none
    nowhere = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    assert commit(wire, f"no-{group}", topic, 7, version, **member) is nowhere


def test_a_topic_id_that_nobody_has_is_named_in_the_answer(wire: Wire, group: str) -> None:
    unknown = uuid.uuid4()
    parts = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": None}]
    fields = {"group_id": group, "member_id": "", "topics": [{"topic_id": unknown, "partitions": parts}]}
    (found,) = wire.send(OFFSET_COMMIT, 10, **fields).topics
    assert (found.topic_id, found.partitions[0].error_code) == (unknown, ErrorCode.unknown_topic_id)
    asked = [{"group_id": group, "topics": [{"topic_id": unknown, "partition_indexes": [0]}]}]
    (fetch,) = wire.send(OFFSET_FETCH, 10, groups=asked).groups
    assert fetched(fetch) == [(unknown, 0, -1, ErrorCode.unknown_topic_id)]


@every_version(OFFSET_FETCH)
def test_offsets_are_fetched(wire: Wire, group: str, topic: tuple[str, uuid.UUID], version: int) -> None:
    assert commit(wire, group, topic, 7) is ErrorCode.none
    name, topic_id = topic
    shown = topic_id if version >= 10 else name
    asked = [{"topic_id" if version >= 10 else "name": shown, "partition_indexes": [0, 1]}]
    both = [(shown, 0, 7, ErrorCode.none), (shown, 1, -1, ErrorCode.none)]
    if version < 8:
        assert fetched(wire.send(OFFSET_FETCH, version, group_id=group, topics=asked)) == both
        if version >= 2:
            assert fetched(wire.send(OFFSET_FETCH, version, group_id=group, topics=None)) == both[:1]
        return
    groups = [
        {"group_id": each, "topics": topics} for each, topics in ((group, asked), (group, None), ("missing", None))
    ]
    found = wire.send(OFFSET_FETCH, version, groups=groups).groups
    assert [each.group_id for each in found] == [group, group, "missing"]
    assert [fetched(each) for each in found] == [both, both[:1], []]
    assert {each.error_code for each in found} == {ErrorCode.none}


@every_version(OFFSET_DELETE)
def test_offsets_are_deleted(wire: Wire, group: str, topic: tuple[str, uuid.UUID], version: int) -> None:
    def forget(group_id: str) -> Any:
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in (topic[0], "missing")]
        return wire.send(OFFSET_DELETE, version, group_id=group_id, topics=topics)

    assert commit(wire, group, topic, 7) is ErrorCode.none
    found = forget(group)
    assert found.error_code is ErrorCode.none
    assert {each.name: each.partitions[0].error_code for each in found.topics} == {
        topic[0]: ErrorCode.none,
        "missing": ErrorCode.unknown_topic_or_partition,
    }
    assert fetched(wire.send(OFFSET_FETCH, 7, group_id=group, topics=None)) == []
    assert forget("missing").error_code is ErrorCode.group_id_not_found


@every_version(DESCRIBE_GROUPS)
def test_a_group_is_described(wire: Wire, group: str, version: int) -> None:
    joined = settle(wire, group)
    asked = {"groups": [group, "missing"], "include_authorized_operations": True}
    found, missing = wire.send(DESCRIBE_GROUPS, version, **asked).groups
    assert (found.error_code, found.group_id, found.group_state) == (ErrorCode.none, group, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, CLIENT_ID, "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (METADATA, ASSIGNMENT)
    if version >= 3:
        assert found.authorized_operations == ALL_OPERATIONS_ON_GROUPS
    assert missing.group_state == "Dead"
    assert missing.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)


@every_version(LIST_GROUPS)
def test_groups_are_listed(wire: Wire, group: str, version: int) -> None:
    settle(wire, group)

    def listed(**filters: list[str]) -> dict[str, Any]:
        response = wire.send(LIST_GROUPS, version, **filters)
        assert response.error_code is ErrorCode.none
        return {each.group_id: each for each in response.groups}

    found = listed()[group]
    assert found.protocol_type == "consumer"
    if version >= 4:
        assert found.group_state == "Stable"
        assert group in listed(states_filter=["stable"])
        assert group not in listed(states_filter=["Empty"])
    if version >= 5:
        assert found.group_type == "classic"
        assert group in listed(types_filter=["Classic"])
        assert group not in listed(types_filter=["consumer"])


@every_version(DELETE_GROUPS)
def test_a_group_is_deleted_once_it_is_empty(
    wire: Wire, group: str, topic: tuple[str, uuid.UUID], version: int
) -> None:
    def delete(*groups: str) -> list[ErrorCode]:
        return [each.error_code for each in wire.send(DELETE_GROUPS, version, groups_names=groups).results]

    member_id = settle(wire, group).member_id
    assert delete(group, "missing") == [ErrorCode.non_empty_group, ErrorCode.group_id_not_found]
    assert wire.send(LEAVE_GROUP, 2, group_id=group, member_id=member_id).error_code is ErrorCode.none
    assert commit(wire, group, topic, 7) is ErrorCode.none
    assert delete(group) == [ErrorCode.none]
    assert fetched(wire.send(OFFSET_FETCH, 7, group_id=group, topics=None)) == []


def test_groups_begin_anew_when_the_offsets_topic_is_deleted(
    wire: Wire, group: str, topic: tuple[str, uuid.UUID]
) -> None:
    assert commit(wire, group, topic, 7) is ErrorCode.none
    offsets_topic = {"name": "__consumer_offsets", "topic_id": None}
    (deleted,) = wire.send(DELETE_TOPICS, 6, topics=[offsets_topic], timeout=PATIENCE_MS).responses
    assert deleted.error_code is ErrorCode.none
    assert fetched(wire.send(OFFSET_FETCH, 7, group_id=group, topics=None)) == []
    assert commit(wire, group, topic, 8) is ErrorCode.none
    assert fetched(wire.send(OFFSET_FETCH, 7, group_id=group, topics=None)) == [(topic[0], 0, 8, ErrorCode.none)]


def beat(wire: Wire, group: str, version: int, member_id: str, epoch: int, **fields: Any) -> Any:
    fields = {"rebalance_timeout": -1, "topic_partitions": None} | fields
    return wire.send(
        CONSUMER_GROUP_HEARTBEAT, version, group_id=group, member_id=member_id, member_epoch=epoch, **fields
    )


@every_version(CONSUMER_GROUP_HEARTBEAT)
def test_a_member_of_the_newer_protocol_is_given_partitions_by_topic_id(
    wire: Wire, group: str, topic: tuple[str, uuid.UUID], version: int
) -> None:
    joining = {"rebalance_timeout": LONG_MS, "subscribed_topic_names": [topic[0]], "topic_partitions": []}
    mine = "" if version == 0 else str(uuid.uuid4())
    joined = beat(wire, group, version, mine, 0, **joining)
    assert (joined.error_code, joined.error_message) == (ErrorCode.none, None)
    assert joined.member_id == mine or version == 0
    (given,) = joined.assignment.topic_partitions
    assert (given.topic_id, sorted(given.partitions)) == (topic[1], [0, 1])
    owned = [{"topic_id": topic[1], "partitions": [0, 1]}]
    unchanged = beat(wire, group, version, joined.member_id, joined.member_epoch, topic_partitions=owned)
    assert (unchanged.error_code, unchanged.heartbeat_interval) == (ErrorCode.none, joined.heartbeat_interval)
    assert beat(wire, group, version, joined.member_id, 99).error_code is ErrorCode.fenced_member_epoch
    assert beat(wire, group, version, joined.member_id, -1).member_epoch == -1


def test_a_member_of_the_newer_protocol_chooses_its_id_from_version_1_on(wire: Wire, group: str) -> None:
    refused = beat(wire, group, 1, "", 0)
    assert (refused.error_code, refused.error_message) == (ErrorCode.invalid_request, "MemberId can't be empty.")


@every_version(CONSUMER_GROUP_DESCRIBE)
def test_a_group_of_the_newer_protocol_is_described(
    wire: Wire, group: str, topic: tuple[str, uuid.UUID], version: int
) -> None:
    joining = {"rebalance_timeout": LONG_MS, "subscribed_topic_names": [topic[0]], "topic_partitions": []}
    assert beat(wire, group, 1, "me", 0, **joining).error_code is ErrorCode.none
    asked = {"group_ids": [group, "missing"], "include_authorized_operations": True}
    found, missing = wire.send(CONSUMER_GROUP_DESCRIBE, version, **asked).groups
    assert (found.error_code, found.group_state, found.assignor_name) == (ErrorCode.none, "Stable", "uniform")
    assert found.authorized_operations == ALL_OPERATIONS_ON_GROUPS
    (member,) = found.members
    assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("me", CLIENT_ID, (topic[0],))
    (given,) = member.assignment.topic_partitions
    assert (given.topic_id, given.topic_name, sorted(given.partitions)) == (topic[1], topic[0], [0, 1])
    if version >= 1:
        assert member.member_type == 1
    assert (missing.error_code, missing.members) == (ErrorCode.group_id_not_found, ())
