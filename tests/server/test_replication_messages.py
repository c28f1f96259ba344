"""Messages between brokers are decoded as they were encoded."""

from __future__ import annotations

from operator import attrgetter
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from sparklog.base import message_mapping
from sparklog.base.addresses import Address
from sparklog.base.errors import InvalidRequest, KafkaError, RecordListTooLarge, error_for
from sparklog.base.ids import TopicPartition
from sparklog.cluster.messages import TopicState, UpdateMetadata, UpdateMetadataResponse
from sparklog.cluster.model import BrokerInfo, PartitionInfo
from sparklog.log.description import SegmentSum
from sparklog.log.epochs import EpochEnd
from sparklog.replica.messages import (
    DescribedPosition,
    DescribeFiles,
    DescribeFilesResponse,
    DescribePositions,
    DescribePositionsResponse,
    FetchedPartition,
    FetchPartition,
    LeaderAndIsr,
    LeaderAndIsrPartitionState,
    LeaderAndIsrResponse,
    Position,
    ReadReplicaFile,
    ReadReplicaFileResponse,
    ReplicaFetch,
    ReplicaFetchResponse,
    SnapshotFile,
    StopPartition,
    StopReplica,
    StopReplicaResponse,
)
from sparklog.server.grpc.replication_calls import CALLS
from sparklog.v1 import replication_pb2

pytestmark = pytest.mark.slow

int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
texts = st.text(max_size=8)
configs = st.dictionaries(texts, texts, max_size=2)
names = st.builds(TopicPartition, texts, int32)
ids = st.lists(int32, max_size=3).map(tuple)
errors = st.builds(error_for, st.sampled_from(sorted(KafkaError.by_code)), texts)
failures = st.dictionaries(names, errors, max_size=2)


def some(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(item, max_size=3).map(tuple)


def fenced(value: type, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    common = {"controller_id": int32, "controller_epoch": int32, "broker_epoch": int64, "number": int64}
    return st.builds(value, **common, store_id=texts, **more)


def about_files(value: type, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(value, name=names, topic_id=st.uuids(), replica_id=int32, leader_epoch=int32, **more)


fetch_partitions = st.builds(
    FetchPartition,
    name=names,
    topic_id=st.uuids(),
    fetch_offset=int64,
    max_bytes=int32,
    current_leader_epoch=int32,
    last_fetched_epoch=st.none() | int32,
    log_start_offset=int64,
)
states = st.builds(
    LeaderAndIsrPartitionState,
    name=names,
    topic_id=st.uuids(),
    leader=int32,
    leader_epoch=int32,
    isr=ids,
    replicas=ids,
    adding=ids,
    removing=ids,
    partition_epoch=int32,
    is_new=st.booleans(),
)
infos = st.builds(
    PartitionInfo,
    leader=int32,
    leader_epoch=int32,
    replicas=ids,
    in_sync_replicas=ids,
    adding=ids,
    removing=ids,
    partition_epoch=int32,
)
brokers = st.builds(
    BrokerInfo,
    broker_id=int32,
    grpc_address=texts,
    listeners=st.dictionaries(texts, st.builds(Address, texts, st.integers(0, 65535)), max_size=2),
    rack=texts,
    version=texts,
    epoch=int64,
)
requests = st.one_of(
    fenced(LeaderAndIsr, partitions=some(states), overrides=st.dictionaries(texts, configs, max_size=2)),
    fenced(
        StopReplica,
        partitions=some(
            st.builds(StopPartition, name=names, leader_epoch=st.integers(-2, 2**31 - 1), delete=st.booleans())
        ),
    ),
    fenced(
        UpdateMetadata,
        brokers=some(brokers),
        topics=some(st.builds(TopicState, name=texts, topic_id=st.uuids(), partitions=some(infos), overrides=configs)),
        deleted=some(texts),
        is_full=st.booleans(),
        broker_overrides=st.dictionaries(int32, configs, max_size=2),
    ),
    st.builds(
        ReplicaFetch,
        replica_id=int32,
        broker_epoch=int64,
        max_wait_ms=int32,
        min_bytes=int32,
        max_bytes=int32,
        session_id=int32,
        session_epoch=int32,
        partitions=some(fetch_partitions),
        forgotten=some(fetch_partitions),
    ),
    about_files(DescribeFiles, since=int64, wants_sums=st.booleans()),
    st.builds(DescribePositions, positions=some(st.builds(Position, name=names, offset=int64))),
    about_files(ReadReplicaFile, offset=int64, identity=texts, snapshot_epoch=st.none() | int32, position=int64),
)
fetched = st.builds(
    FetchedPartition,
    name=names,
    error=st.none() | errors,
    high_watermark=int64,
    log_start_offset=int64,
    records=st.binary(max_size=300),
    segment_base_offset=int64,
    diverging=st.none() | st.builds(EpochEnd, int32, int64),
    leader_epoch=int32,
    generation=int64,
)
sums = st.builds(
    SegmentSum,
    base_offset=int64,
    next_offset=int64,
    size_bytes=int64,
    crc32c=st.integers(-1, 2**32 - 1),
    identity=texts,
)
described = st.builds(
    DescribeFilesResponse,
    generation=int64,
    segments=some(sums),
    closed_to=int64,
    cleaned_offset=int64,
    is_summed=st.booleans(),
    snapshot=st.none() | st.builds(SnapshotFile, end_offset=int64, leader_epoch=int32, size_bytes=int64),
)
responses = st.one_of(
    st.tuples(st.just(LeaderAndIsr), st.builds(LeaderAndIsrResponse, errors=failures)),
    st.tuples(st.just(StopReplica), st.builds(StopReplicaResponse, errors=failures)),
    st.tuples(st.just(UpdateMetadata), st.just(UpdateMetadataResponse())),
    st.tuples(st.just(ReplicaFetch), st.builds(ReplicaFetchResponse, session_id=int32, partitions=some(fetched))),
    st.tuples(st.just(DescribeFiles), described),
    st.tuples(
        st.just(DescribePositions),
        st.builds(
            DescribePositionsResponse,
            positions=some(
                st.builds(DescribedPosition, high_watermark=st.none() | int64, timestamp_ms=st.none() | int64)
            ),
        ),
    ),
    st.tuples(st.just(ReadReplicaFile), st.builds(ReadReplicaFileResponse, data=st.binary(max_size=300))),
)
CALL_OF = {call.request: call for call in CALLS}


def plain(value: Any) -> Any:
    """The value with errors as comparable values: two exceptions are never equal."""
    match value:
        case KafkaError():
            return (type(value), str(value))
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case tuple() if type(value) is tuple:
            return tuple(plain(item) for item in value)
        case Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    return value


@settings(max_examples=30)
@given(requests)
def test_a_request_arrives_as_it_was_sent(request: Any) -> None:
    call = CALL_OF[type(request)]

    assert call.decode_request(call.encode_request(request)) == request


@settings(max_examples=30)
@given(responses)
def test_an_answer_arrives_as_it_was_given(answered: tuple[type, Any]) -> None:
    request, response = answered
    call = CALL_OF[request]

    assert plain(call.decode_response(call.encode_response(response))) == plain(response)


@settings(max_examples=20)
@given(some(fetched))
def test_records_put_in_by_hand_are_what_protobuf_would_have_written(parts: tuple[FetchedPartition, ...]) -> None:
    data = CALL_OF[ReplicaFetch].encode_response(ReplicaFetchResponse(session_id=7, partitions=parts))

    message = replication_pb2.ReplicaFetchResponse.FromString(data)

    assert message.SerializeToString() == data
    assert [part.records for part in message.partitions] == [part.records for part in parts]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.method)
@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x50"], ids=["no-tag", "too-short"])
def test_what_is_no_request_is_refused(call: Any, data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        call.decode_request(data)


def test_a_topic_without_an_id_is_refused() -> None:
    nameless = replication_pb2.LeaderAndIsrRequest(partitions=[replication_pb2.PartitionState(topic="t")])

    with pytest.raises(InvalidRequest, match="a topic id has 16 bytes, not 0"):
        CALL_OF[LeaderAndIsr].decode_request(nameless.SerializeToString())


LARGEST = {
    "LeaderAndIsr": 16 << 20, "StopReplica": 16 << 20, "UpdateMetadata": 16 << 20, "Fetch": 16 << 20,
    "DescribeFiles": 64 << 10, "ReadFile": 64 << 10, "ControlledShutdown": 64 << 10,
    "AlterPartitionReassignments": 8 << 20, "ElectLeaders": 8 << 20, "AppendHistory": 8 << 20,
    "WriteTxnMarkers": 8 << 20, "AddPartitionsToTxn": 8 << 20, "DescribePositions": 8 << 20,
}  # fmt: skip
"""How many bytes a request may have."""
METHOD = attrgetter("method")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.method)
def test_a_request_larger_than_its_method_needs_is_refused_unread(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_mapping, "parse", Mock(side_effect=AssertionError("it was parsed")))
    most = LARGEST[call.method]

    with pytest.raises(RecordListTooLarge, match=f"at most {most} are taken at once"):
        call.decode_request(b"\x0a" + bytes(most))


@pytest.mark.parametrize("call", [call for call in CALLS if LARGEST[call.method] > 1 << 20], ids=METHOD)
def test_a_request_of_a_great_many_fields_is_refused_unread(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_mapping, "parse", Mock(side_effect=AssertionError("it was parsed")))

    with pytest.raises(RecordListTooLarge, match="a request of more than"):
        call.decode_request(b"\x78\0" * 1_000_001)


NAMES = [TopicPartition(f"{number:05d}".ljust(249, "n"), 0) for number in range(10_000)]
TOPIC_ID = UUID(int=2)
EPOCHS = {"controller_id": 1, "controller_epoch": 1, "broker_epoch": 1}
REPLICAS = {"leader": 1, "leader_epoch": 300, "replicas": (1, 2, 3), "partition_epoch": 300}
OVERRIDES = {"cleanup.policy": "compact", "retention.ms": "-1", "min.insync.replicas": "2"}
PART = PartitionInfo(in_sync_replicas=(1, 2, 3), **REPLICAS)
OF_LARGE_CLUSTERS = [
    LeaderAndIsr(
        partitions=tuple(LeaderAndIsrPartitionState(name=n, topic_id=TOPIC_ID, isr=(1,), **REPLICAS) for n in NAMES),
        overrides={name.topic: OVERRIDES for name in NAMES},
        **EPOCHS,
    ),
    UpdateMetadata(
        brokers=(),
        topics=tuple(
            TopicState(name=name.topic, topic_id=TOPIC_ID, partitions=(PART,), overrides=OVERRIDES) for name in NAMES
        ),
        **EPOCHS,
    ),
    StopReplica(partitions=tuple(StopPartition(name=n, leader_epoch=1, delete=True) for n in NAMES), **EPOCHS),
    ReplicaFetch(
        replica_id=2, broker_epoch=9, max_wait_ms=0, min_bytes=1, max_bytes=1, session_id=0, session_epoch=-1,
        partitions=tuple(
            FetchPartition(
                name=name, topic_id=TOPIC_ID, fetch_offset=2**40, max_bytes=1 << 20, current_leader_epoch=1,
                last_fetched_epoch=1, log_start_offset=2**40,
            )
            for name in NAMES
        ),
    ),
]  # fmt: skip
"""Of 10,000 topics with the longest names and configurations of their own, all on one broker."""


@pytest.mark.parametrize("request_", OF_LARGE_CLUSTERS, ids=lambda request: type(request).__name__)
def test_large_clusters_are_within_the_limits(request_: Any) -> None:
    call = CALL_OF[type(request_)]
    assert call.decode_request(call.encode_request(request_)) == request_
