"""gRPC requests with thousands of elements: answered as many small ones, while other requests are served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from sparklog.base.ids import TopicPartition
from sparklog.base.protobuf import bytes_tag, varint
from sparklog.broker.apis import describe_topics, group_apis
from sparklog.group.requests import (
    CommittedOffset,
    ConsumerGroupDescribeResponse,
    DescribedConsumer,
    DescribedConsumerGroup,
    OffsetFetchResponse,
)
from sparklog.runtime import slices
from sparklog.server.grpc.server import ADMIN, GROUPS, LOG, MAINTENANCE, SINKS, TRANSACTIONS
from sparklog.server.grpc.service import MAX_FIELDS, MAX_TOGETHER, ONCE, WIDE, service_handler
from sparklog.server.kafka.quotas import RequestQueue
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import admin_pb2, admin_pb2_grpc, groups_pb2, groups_pb2_grpc, log_pb2, log_pb2_grpc, replication_pb2
from support.brokers.grown_messages import grow, repeated_fields
from support.brokers.most_calls import MOST_CALLS, fewest_calls, most_calls
from support.patience import wait_until
from support.runs.seeds import SEED

pytestmark = pytest.mark.slow

BYTES = 15_000 if SEED is None else 300_000
SERVICES = [LOG, GROUPS, ADMIN, MAINTENANCE, SINKS, TRANSACTIONS]
METHODS = {
    method.input_type.name.removesuffix("Request"): method
    for service in SERVICES
    for method in service.methods
    if not (method.client_streaming or method.server_streaming)
}
REPLICATION = replication_pb2.DESCRIPTOR.services_by_name["Replication"]
MAKES_TOPICS = {"CreateTopics", "CreatePartitions"}


@pytest.fixture(scope="module")
def wide_broker() -> Iterator[RunningBroker]:
    with start_broker(auto_create_topics_enable=False, offsets_topic_num_partitions=3) as broker:
        yield broker


@pytest.fixture(scope="module")
def wide_channel(wide_broker: RunningBroker) -> Iterator[grpc.Channel]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(wide_broker.bootstrap, options=options) as channel:
        yield channel


def call(channel: grpc.Channel, method: Any, data: bytes) -> bytes:
    """The answer of a method to these bytes."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    answer: bytes = channel.unary_unary(path, request_serializer=None, response_deserializer=None)(data)
    return answer


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("name", METHODS)
def test_others_have_their_turn_while_a_long_request_is_served(
    name: str, wide_broker: RunningBroker, wide_channel: grpc.Channel
) -> None:
    """For any long field: the broker makes at most some thousand calls in one turn."""
    method = METHODS[name]
    random = Random(f"{name} {SEED}")
    for path in repeated_fields(method.input_type):
        for numbered in (False, name not in MAKES_TOPICS):
            data = grow(random, method.input_type, path, BYTES, numbered=numbered)
            with most_calls(wide_broker) as most, suppress(grpc.RpcError):
                call(wide_channel, method, data)
            assert most.calls < MOST_CALLS, f"{name}, {'/'.join(path)}: {most}"


def test_all_topics_and_log_dirs_are_described_a_part_at_a_time(
    wide_broker: RunningBroker, wide_channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = admin_pb2_grpc.AdminStub(wide_channel)
    names = [f"all-{number:02d}" for number in range(100)]  # more than topics of other tests
    admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=[{"name": name, "partitions": 3} for name in names]))
    everything = admin.DescribeTopics(admin_pb2.DescribeTopicsRequest())
    monkeypatch.setattr(describe_topics, "DESCRIBED_TOGETHER", 12)
    monkeypatch.setattr(slices, "SLICE_S", 0)

    for wanted in ([], names):
        request = admin_pb2.DescribeTopicsRequest(names=wanted)
        found = admin.DescribeTopics(request)
        most = fewest_calls(wide_broker, partial(admin.DescribeTopics, request))
        assert most.calls < most.total / 5
        assert {topic.name for topic in found.topics} >= {*names}
        assert wanted or found == everything

    all_dirs = admin_pb2.DescribeLogDirsRequest()
    [log_dir] = admin.DescribeLogDirs(all_dirs).log_dirs
    one = fewest_calls(wide_broker, partial(admin.DescribeLogDirs, admin_pb2.DescribeLogDirsRequest(topics=["all-00"])))
    most = fewest_calls(wide_broker, partial(admin.DescribeLogDirs, all_dirs))
    assert len(log_dir.partitions) >= 3 * len(names)
    assert most.calls < one.calls + len(names)


@pytest.mark.parametrize("field", ["set", "unset"])
def test_more_keys_than_a_resource_can_have_are_refused_without_being_looked_at(
    field: str, wide_broker: RunningBroker, wide_channel: grpc.Channel
) -> None:
    admin = admin_pb2_grpc.AdminStub(wide_channel)
    admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=[{"name": "many-keys", "partitions": 1}]))
    change = admin_pb2.ConfigChange(resource={"type": admin_pb2.TOPIC, "name": "many-keys"})
    names = [f"key-{number}" for number in range(50_000)]
    if field == "set":
        for name in names:
            change.set[name] = "1"
    else:
        change.unset.extend(names)
    with most_calls(wide_broker) as most:
        [result] = admin.AlterConfigs(admin_pb2.AlterConfigsRequest(changes=[change])).resources
    assert result.error.name == "INVALID_REQUEST"
    assert "more than 1000 keys of one resource" in result.error.message
    assert most.calls < len(names)


def test_others_have_their_turn_while_duplicates_are_dropped(
    wide_broker: RunningBroker, wide_channel: grpc.Channel
) -> None:
    admin = admin_pb2_grpc.AdminStub(wide_channel)
    request = admin_pb2.CreateTopicsRequest(topics=[{}] * (MAX_FIELDS - 1))
    with most_calls(wide_broker) as most:
        [topic] = admin.CreateTopics(request).topics
    assert topic.error.name == "INVALID_TOPIC_EXCEPTION"
    assert most.calls < MOST_CALLS / 5, most


def test_others_have_their_turn_while_a_large_topic_is_made(
    wide_broker: RunningBroker, wide_channel: grpc.Channel
) -> None:
    admin = admin_pb2_grpc.AdminStub(wide_channel)
    topics = [{"name": f"large-{number}", "partitions": 5_000, "replication_factor": 1} for number in range(2)]
    with most_calls(wide_broker) as most:
        made = admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=topics, validate_only=True)).topics
    assert [topic.partitions for topic in made] == [5_000, 5_000]
    assert most.calls < MOST_CALLS / 5, most


def test_too_many_partitions_are_refused_in_all(wide_channel: grpc.Channel) -> None:
    topics = [{"name": f"large-{number}", "partitions": 5_000} for number in range(3)]
    request = admin_pb2.CreateTopicsRequest(topics=topics, validate_only=True)
    results = admin_pb2_grpc.AdminStub(wide_channel).CreateTopics(request).topics
    assert {result.error.message for result in results} == {"Excessively large number of partitions per request."}


def test_every_method_that_is_served_in_parts_has_the_field() -> None:
    for name, field in WIDE.items():
        assert METHODS[name].input_type.fields_by_name[field].is_repeated


async def test_the_parts_of_a_request_have_none_of_its_unknown_fields(wide_broker: RunningBroker) -> None:
    """Each of thousands of parts would have a copy of them."""
    parts = []

    async def serve(request: admin_pb2.DeleteTopicsRequest, _: object) -> admin_pb2.DeleteTopicsResponse:
        parts.append(request.ByteSize())
        return admin_pb2.DeleteTopicsResponse()

    servicer = SimpleNamespace(broker=wide_broker.node.broker, **{method.name: serve for method in ADMIN.methods})
    handler = service_handler(ADMIN, servicer, slices.Slices())
    method = handler.service(SimpleNamespace(method=f"/{ADMIN.full_name}/DeleteTopics"))
    names = admin_pb2.DeleteTopicsRequest(names=[f"{number:05d}" for number in range(1_000)]).SerializeToString()
    unknown = bytes_tag(1_000) + varint(10_000) + bytes(10_000)

    await method.unary_unary(names + unknown, SimpleNamespace())

    assert len(parts) == 100
    assert sum(parts) == len(names)


def test_a_wide_request_is_answered_in_its_order_and_once_for_each(wide_channel: grpc.Channel) -> None:
    names = [f"topic-{number}" for number in range(1_000)]
    admin = admin_pb2_grpc.AdminStub(wide_channel)
    admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=[{"name": "topic-500", "partitions": 2}]))

    found = admin.DescribeTopics(admin_pb2.DescribeTopicsRequest(names=[*names, *names])).topics

    assert [topic.name for topic in found] == names
    assert [len(topic.partitions) for topic in found if not topic.error.code] == [2]


@pytest.mark.parametrize("name", sorted(ONCE))
def test_what_is_named_again_is_answered_once(name: str, wide_channel: grpc.Channel) -> None:
    method, field = METHODS[name], WIDE[name]
    data = grow(Random(name), method.input_type, (field,), 100, numbered=True)
    request = GetMessageClass(method.input_type).FromString(data)
    assert 1 < len(getattr(request, field)) <= 50
    once = call(wide_channel, method, request.SerializeToString())
    getattr(request, field).extend([*getattr(request, field)])
    assert call(wide_channel, method, request.SerializeToString()) == once


def test_large_answers_of_one_group_are_made_while_others_have_their_turn(
    wide_broker: RunningBroker, wide_channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [TopicPartition("t", number) for number in range(20_000)]
    names = [f"{number}" for number in range(5_000)]
    member = DescribedConsumer(
        member_id="m", group_instance_id=None, rack_id=None, member_epoch=1, client_id="", client_host="",
        subscribed_topic_names=names, subscribed_topic_regex=None, assignment=partitions, target_assignment=partitions,
    )  # fmt: skip
    responses = {
        group_apis.OFFSET_FETCH: OffsetFetchResponse(
            offsets=[CommittedOffset(partition=each, offset=1) for each in partitions]
        ),
        group_apis.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeResponse(
            groups=[DescribedConsumerGroup(group_id="g", members=[member])]
        ),
    }

    def answer(response: object) -> Callable[[object], Awaitable[object]]:
        async def handle(_: object) -> object:
            return response

        return handle

    for api, response in responses.items():
        monkeypatch.setitem(wide_broker.node.broker.services.handlers, api, answer(response))
    groups = groups_pb2_grpc.GroupsStub(wide_channel)
    with most_calls(wide_broker) as most:
        found = groups.OffsetFetch(groups_pb2.OffsetFetchRequest(group_id="g")).partitions
        [group] = groups.DescribeGroups(groups_pb2.DescribeGroupsRequest(group_ids=["g"])).groups
    assert [each.partition for each in found] == [each.partition for each in partitions]
    assert group.members[0].topics == names
    assert len(group.members[0].assignment) == len(partitions)
    assert most.calls < len(partitions), most


@pytest.mark.parametrize("name", ["LeaderAndIsr", "UpdateMetadata"])
def test_others_have_their_turn_while_the_controller_tells_much(
    name: str, wide_broker: RunningBroker, wide_channel: grpc.Channel
) -> None:
    method = REPLICATION.methods_by_name[name]
    request = GetMessageClass(method.input_type)()
    for number in range(MAX_TOGETHER):
        if name == "UpdateMetadata":
            request.topics.add(name=f"{number}", topic_id=bytes(15) + b"\2").partitions.add(replicas=[1, 2])
        else:
            request.partitions.add(topic="t", partition=number, topic_id=bytes(15) + b"\2", isr=[1, 2])
    with most_calls(wide_broker) as most, suppress(grpc.RpcError):
        call(wide_channel, method, request.SerializeToString())
    assert most.calls < MAX_TOGETHER / 2, most


@pytest.mark.parametrize("name", ["ElectLeaders", "AlterPartitionReassignments"])
def test_others_have_their_turn_while_the_controller_decides_about_much(
    name: str, wide_broker: RunningBroker, wide_channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)
    request = GetMessageClass(METHODS[name].input_type)()
    for number in range(MAX_TOGETHER):
        request.partitions.add(topic="t", partition=number)
    for method in (METHODS[name], REPLICATION.methods_by_name[name]):
        with most_calls(wide_broker) as most:
            answer = call(wide_channel, method, request.SerializeToString())
        assert len(GetMessageClass(method.output_type).FromString(answer).partitions) == MAX_TOGETHER
        assert most.calls < 3 * MAX_TOGETHER, most


def test_a_file_is_not_asked_for_with_megabytes(wide_channel: grpc.Channel) -> None:
    request = replication_pb2.ReadFileRequest(topic_id=bytes(1 << 20))
    with pytest.raises(grpc.RpcError, match="RECORD_LIST_TOO_LARGE") as refused:
        call(wide_channel, REPLICATION.methods_by_name["ReadFile"], request.SerializeToString())
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_more_than_a_broker_takes_at_once_is_refused(wide_channel: grpc.Channel) -> None:
    admin, log = admin_pb2_grpc.AdminStub(wide_channel), log_pb2_grpc.LogStub(wide_channel)

    with pytest.raises(grpc.RpcError, match=f"a request of more than {MAX_FIELDS} fields: send several"):
        admin.DescribeTopics(admin_pb2.DescribeTopicsRequest(names=["a"] * (MAX_FIELDS + 1)))
    with pytest.raises(grpc.RpcError, match=f"more than {MAX_TOGETHER} partitions at once: send several"):
        log.Produce(log_pb2.ProduceRequest(partitions=[{"topic": "a"}] * (MAX_TOGETHER + 1)))


def test_large_calls_are_refused_while_too_many_bytes_are_in_work() -> None:
    with start_broker(queued_max_request_bytes=200_000) as broker, grpc.insecure_channel(broker.bootstrap) as channel:
        log, queue = log_pb2_grpc.LogStub(channel), broker.node._grpc.queue
        large = log_pb2.ProduceRequest(partitions=[{"topic": "t", "partition": 0, "batches": bytes(100_000)}])
        in_work(broker, queue, 200_000)
        with pytest.raises(grpc.RpcError, match=r"RESOURCE_EXHAUSTED|THROTTLING_QUOTA_EXCEEDED.*queued\.max\.request"):
            log.Produce(large)
        log.Fetch(log_pb2.FetchRequest(partitions=[{"topic": "t"}]))
        in_work(broker, queue, -1)
        assert log.Produce(large).partitions[0].error.name
        wait_until(lambda: queue.bytes == 199_999, "nothing else is in work")
        in_work(broker, queue, -199_999)


def in_work(broker: RunningBroker, queue: RequestQueue, size: int) -> None:
    async def reserve() -> None:
        queue.reserve(size)

    broker.run(reserve())
