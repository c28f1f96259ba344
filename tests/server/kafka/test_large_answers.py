"""Large answers about one element: other requests are served meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import group_apis
from sparklog.group.requests import (
    CommittedOffset,
    ConsumerGroupDescribeResponse,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsResponse,
    OffsetFetchResponse,
)
from sparklog.log.log import Log
from sparklog.log.producers.producer_state import ProducerState
from sparklog.server.kafka.messages import LARGE_BYTES, is_large, make, response_type, write
from sparklog.testing import RunningBroker
from support.brokers.most_calls import MOST_CALLS, most_calls
from support.kafka.connection import Wire

pytestmark = pytest.mark.slow

METADATA, OFFSET_FETCH, DESCRIBE_GROUPS, API_VERSIONS, DESCRIBE_PRODUCERS, CONSUMER_GROUP_DESCRIBE = (
    3,
    9,
    15,
    18,
    61,
    69,
)
MANY = 20_000
Serve = Callable[[Api[Any, Any], Any], None]


@pytest.fixture
def serve(kafka_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Replace the handler of an API by one with a fixed response."""

    def replace(api: Api[Any, Any], response: Any) -> None:
        async def handle(_: Any) -> Any:
            return response

        handler: Callable[[Any], Awaitable[Any]] = handle
        monkeypatch.setitem(kafka_broker.node.broker.services.handlers, api, handler)

    return replace


@pytest.fixture
def ask(kafka_broker: RunningBroker, wire: Wire) -> Callable[..., Any]:
    """Send a request, and check that the broker does a limited amount of work in each turn."""

    def send(key: int, version: int, **fields: Any) -> Any:
        wire.send(key, version, **fields)  # the first one of a process does more
        with most_calls(kafka_broker) as most:
            found = wire.send(key, version, **fields)
        assert most.calls < MOST_CALLS, most
        return found

    return send


def test_a_partition_of_many_producers(
    wire: Wire, ask: Callable[..., Any], new_name: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = new_name()
    while wire.send(METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=True).topics[0].error_code:
        pass
    states = {number: ProducerState(epoch=number % 7) for number in reversed(range(MANY))}
    monkeypatch.setattr(Log, "producers", property(lambda _: states))

    [topic] = ask(DESCRIBE_PRODUCERS, 0, topics=[{"name": name, "partition_indexes": [0, 1]}]).topics

    [found, missing] = topic.partitions
    assert [(each.producer_id, each.producer_epoch) for each in found.active_producers] == [
        (number, number % 7) for number in range(MANY)
    ]
    assert missing.error_code
    assert missing.active_producers == ()


def test_a_group_of_many_members(ask: Callable[..., Any], serve: Serve) -> None:
    def group(name: str, members: int) -> DescribedGroup:
        ids = [f"{name}-{number}" for number in range(members)]
        how: dict[str, Any] = {"group_instance_id": None, "client_id": "", "client_host": "", "assignment": b""}
        return DescribedGroup(
            group_id=name, members=[DescribedMember(member_id=each, metadata=each.encode(), **how) for each in ids]
        )

    sizes = {"a": 3, "b": MANY, "c": 0, "d": 1}
    response = DescribeGroupsResponse(groups=[group(*each) for each in sizes.items()])
    serve(group_apis.DESCRIBE_GROUPS, response)
    found = ask(DESCRIBE_GROUPS, 5, groups=[*sizes], include_authorized_operations=False).groups
    assert {each.group_id: len(each.members) for each in found} == sizes
    assert [member.member_metadata for each in found for member in each.members] == [
        member.metadata for each in response.groups for member in each.members
    ]


def test_a_consumer_group_of_many_subscriptions(ask: Callable[..., Any], serve: Serve) -> None:
    names = tuple(f"topic-{number}" for number in range(9_900))
    members = [
        DescribedConsumer(
            member_id=f"{number}",
            group_instance_id=None,
            rack_id=None,
            member_epoch=1,
            client_id="",
            client_host="",
            subscribed_topic_names=names,
            subscribed_topic_regex=None,
            assignment=(),
            target_assignment=(),
        )
        for number in range(41)
    ]
    described = [DescribedConsumerGroup(group_id=each, members=members) for each in ("a", "b")]
    serve(group_apis.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeResponse(groups=described))
    found = ask(CONSUMER_GROUP_DESCRIBE, 0, group_ids=["a", "b"], include_authorized_operations=False).groups
    assert [each.group_id for each in found] == ["a", "b"]
    for each in found:
        assert [member.member_id for member in each.members] == [member.member_id for member in members]
        assert all(member.subscribed_topic_names == names for member in each.members)


@pytest.mark.parametrize("version", [1, 7, 8])
def test_a_group_of_many_offsets(version: int, ask: Callable[..., Any], serve: Serve) -> None:
    partitions = [TopicPartition(name, number) for name in "abc" for number in range(MANY // 3)]
    offsets = [CommittedOffset(partition=name, offset=3, metadata="m" * 100) for name in partitions]
    serve(group_apis.OFFSET_FETCH, OffsetFetchResponse(offsets=offsets))
    if version < 8:
        answers = [ask(OFFSET_FETCH, version, group_id="g", topics=[{"name": "a", "partition_indexes": [0]}])]
    else:
        answers = ask(
            OFFSET_FETCH, version, groups=[{"group_id": name, "topics": None} for name in "gh"], require_stable=False
        ).groups
        assert [each.group_id for each in answers] == ["g", "h"]
    for each in answers:
        assert [topic.name for topic in each.topics] == ["a", "b", "c"]
        found = [(topic.name, part.partition_index) for topic in each.topics for part in topic.partitions]
        assert found == partitions
        assert {part.metadata for topic in each.topics for part in topic.partitions} == {"m" * 100}


@pytest.mark.parametrize("members", [0, 1, 10, 2_000])
@pytest.mark.parametrize("size", [0, 100, LARGE_BYTES])
def test_large_is_what_takes_long_to_write(members: int, size: int) -> None:
    member = {
        "member_id": "m", "client_id": "c", "client_host": "h", "member_assignment": b"",
        "member_metadata": bytes(size),
    }  # fmt: skip
    group = {
        "error_code": None, "group_id": "g", "group_state": "", "protocol_type": "", "protocol_data": "",
        "members": [member] * members,
    }  # fmt: skip
    message = make(response_type(DESCRIBE_GROUPS, 3), groups=[group])
    assert is_large(message) == (members == 2_000 or len(write(message)) > LARGE_BYTES)


def test_many_names_are_large() -> None:
    cls = response_type(API_VERSIONS, 0)
    assert is_large(make(cls, api_keys=[{"api_key": 1, "min_version": 0, "max_version": 1}] * 1_100))
    assert not is_large(make(cls, api_keys=[{"api_key": 1, "min_version": 0, "max_version": 1}] * 100))
