"""The APIs of both listeners of a broker that has topics and groups, and how each is asked."""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import grpc

from sparklog.server.grpc.server import ADMIN, GROUPS, LOG, MAINTENANCE, TRANSACTIONS
from sparklog.server.kafka.apis import TRANSLATIONS
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    groups_pb2,
    groups_pb2_grpc,
    replication_pb2,
)
from support.fuzzing import grpc_messages, kafka_requests
from support.fuzzing.shapes import KNOWN_NAMES, LARGE, Path, Shape
from support.fuzzing.state import fill_up, open_transactions
from support.kafka.connection import Wire, request_frame
from support.patience import PATIENCE_S

METADATA, JOIN_GROUP, SYNC_GROUP, API_VERSIONS, CONSUMER_GROUP_HEARTBEAT = 3, 11, 14, 18, 68
LAST = 77
"""The correlation id of the request behind the one that is measured: once it is answered, that one is done with."""
SUBSCRIBED_S = 0.5
"""How long a subscription is listened to, which has no end."""
SERVICES = [LOG, GROUPS, ADMIN, MAINTENANCE, TRANSACTIONS, replication_pb2.DESCRIPTOR.services_by_name["Replication"]]
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzzed:
    """A broker, and what of it is not the same each time."""

    broker: RunningBroker
    channel: grpc.Channel
    topic_ids: list[uuid.UUID] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One API."""

    name: str
    versions: tuple[int, int]
    longest: Callable[[int], Mapping[Path, int]]
    """How long what can grow in a request of the version may be."""
    build: Callable[[Shape, Fuzzed], bytes]
    ask: Callable[[Fuzzed, bytes], int]
    """Send the request; how long the answer is."""


@contextmanager
def fuzzed_broker(*, is_full: bool = False) -> Iterator[Fuzzed]:
    """A broker with topics, groups and transactional ids, each named by a number, and with groups that have members.

    is_full: also with thousands of groups, producers, transactions and offsets, and with fetches that wait.
    """
    with (
        start_broker(
            kafka=True,
            auto_create_topics_enable=False,
            group_initial_rebalance_delay_ms=0,
            group_min_session_timeout_ms=1,
            offsets_topic_num_partitions=3,
            transaction_state_log_num_partitions=3,
            num_partitions=2,
        ) as broker,
        grpc.insecure_channel(broker.bootstrap, options=UNLIMITED) as channel,
        ExitStack() as stack,
    ):
        _fill(broker, channel)
        open_transactions(_address(broker), map(str, range(KNOWN_NAMES)), "orders", 1)
        if is_full:
            fill_up(_address(broker), channel, stack)
        with Wire(_address(broker)) as wire:
            topics = wire.send(
                METADATA, 12, topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
            ).topics
        yield Fuzzed(
            broker=broker,
            channel=channel,
            topic_ids=[topic.topic_id for topic in sorted(topics, key=lambda topic: topic.name == LARGE)],
        )


def subjects() -> dict[str, Subject]:
    """By name: the APIs of Kafka's protocol, and with their services' names the methods of gRPC."""
    found = [_kafka_subject(translation.api) for translation in TRANSLATIONS]
    found += [_grpc_subject(method) for service in SERVICES for method in service.methods]
    return {subject.name: subject for subject in found}


def _kafka_subject(api: Any) -> Subject:
    def build(shape: Shape, fuzzed: Fuzzed) -> bytes:
        return kafka_requests.build(shape, api.key, fuzzed.topic_ids)

    return Subject(
        name=api.name,
        versions=api.versions,
        longest=lambda version: kafka_requests.longest(api.key, version),
        build=build,
        ask=lambda fuzzed, frame: _send(_address(fuzzed.broker), frame),
    )


def _grpc_subject(method: Any) -> Subject:
    return Subject(
        name=f"{method.containing_service.name}.{method.name}",
        versions=(0, 0),
        longest=lambda _: grpc_messages.longest(method.input_type),
        build=lambda shape, _: grpc_messages.build(shape, method.input_type),
        ask=lambda fuzzed, data: _call(fuzzed.channel, method, data),
    )


def _send(address: tuple[str, int], frame: bytes) -> int:
    """The answer's bytes; 0 where the connection is closed instead."""
    answered = 0
    with Wire(address) as wire, suppress(ConnectionError):
        wire.write_frame(frame)
        wire.write_frame(request_frame(API_VERSIONS, 0, LAST))
        while True:
            size, correlation_id = _drop_frame(wire.socket)
            if correlation_id == LAST:
                break
            answered += size
    return answered


def _drop_frame(connection: socket.socket) -> tuple[int, int]:
    """Its size and its correlation id. What is read is not kept: it would be counted as the broker's memory."""
    room = memoryview(bytearray(1 << 16))
    read = connection.recv_into(room, 8, socket.MSG_WAITALL)
    if read < 8:
        raise ConnectionError("the broker closed the connection")
    size, correlation_id = struct.unpack_from(">ii", room)
    left = size - 4
    while left:
        read = connection.recv_into(room, min(left, len(room)))
        if not read:
            raise ConnectionError("the broker closed the connection")
        left -= read
    return size, correlation_id


def _call(channel: grpc.Channel, method: Any, data: bytes) -> int:
    """The bytes of the answers; 0 where the call is refused."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    with suppress(grpc.RpcError):
        if method.client_streaming:
            call = channel.stream_stream(path, request_serializer=None, response_deserializer=None)
            return sum(map(len, call(iter([data]), timeout=PATIENCE_S)))
        if method.server_streaming:
            stream = channel.unary_stream(path, request_serializer=None, response_deserializer=None)
            return sum(map(len, stream(data, timeout=SUBSCRIBED_S)))
        unary = channel.unary_unary(path, request_serializer=None, response_deserializer=None)
        return len(unary(data, timeout=PATIENCE_S))
    return 0


def _address(broker: RunningBroker) -> tuple[str, int]:
    return broker.node.kafka_addresses["PLAINTEXT"]


def _fill(broker: RunningBroker, channel: grpc.Channel) -> None:
    names = [str(number) for number in range(KNOWN_NAMES)]
    topics = [{"name": name, "partitions": 2} for name in names] + [{"name": "orders", "partitions": KNOWN_NAMES}]
    admin, groups = admin_pb2_grpc.AdminStub(channel), groups_pb2_grpc.GroupsStub(channel)
    created = admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=topics))
    assert not any(topic.error.code for topic in created.topics), created
    for name in names:
        offsets = [{"topic": topic, "partition": 0, "offset": 1} for topic in names]
        groups.OffsetCommit(groups_pb2.OffsetCommitRequest(group_id=name, member_id="", offsets=offsets))
    with Wire(_address(broker)) as wire:
        how = {"session_timeout": 60_000, "rebalance_timeout": 60_000, "protocol_type": "consumer"}
        joined = wire.send(
            JOIN_GROUP, 3, group_id="consumer", member_id="",
            protocols=[{"name": "range", "metadata": b"\0\3" + bytes(20)}], **how,
        )  # fmt: skip
        wire.send(
            SYNC_GROUP, 1, group_id="consumer", generation_id=joined.generation_id, member_id=joined.member_id,
            assignments=[{"member_id": joined.member_id, "assignment": b""}],
        )  # fmt: skip
        wire.send(
            CONSUMER_GROUP_HEARTBEAT, 0, group_id="range", member_id="a", member_epoch=0, instance_id=None,
            rack_id=None, rebalance_timeout=60_000, subscribed_topic_names=["orders"], server_assignor=None,
            topic_partitions=[],
        )  # fmt: skip
