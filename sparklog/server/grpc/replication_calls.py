"""Calls between brokers: the methods of the service `Replication`, by the type of their request value.

value ─ encode ─▶ bytes ═ gRPC ═▶ bytes ─ decode ─▶ value          the request at the caller, then at the callee;
                                                                    the answer the other way round
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from sparklog.base import message_mapping
from sparklog.base.message_mapping import to_message, to_value
from sparklog.broker.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from sparklog.broker.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from sparklog.broker.apis.partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from sparklog.cluster.history import AppendHistory, AppendHistoryResponse
from sparklog.cluster.messages import UpdateMetadata, UpdateMetadataResponse
from sparklog.coordinator.transaction_messages import WriteTxnMarkers, WriteTxnMarkersResponse
from sparklog.replica.messages import (
    DescribeFiles,
    DescribeFilesResponse,
    DescribePositions,
    DescribePositionsResponse,
    LeaderAndIsr,
    LeaderAndIsrResponse,
    ReadReplicaFile,
    ReadReplicaFileResponse,
    ReplicaFetch,
    StopReplica,
    StopReplicaResponse,
)
from sparklog.server.grpc import controller_call_messages, fetch_messages, service
from sparklog.transaction.requests import AddPartitions, AddPartitionsResponse
from sparklog.v1 import replication_pb2

_METHODS = replication_pb2.DESCRIPTOR.services_by_name["Replication"].methods_by_name
Fields = Callable[[Any], dict[str, Any]]


class ReplicationCall(Struct, frozen=True, kw_only=True, eq=False):
    """One method of the service, with the encoding of its request and answer.

    Decoding raises InvalidRequest, or RecordListTooLarge for a request that exceeds a limit of its method.
    """

    method: str
    request: type
    request_class: Any
    """Class of the request's message."""
    encode_request: Callable[[Any], bytes]
    decode_request: Callable[[bytes], Any]
    encode_response: Callable[[Any], bytes]
    decode_response: Callable[[bytes], Any]


class FieldMapping(NamedTuple):
    """The fields of a message and of its value, where the names differ."""

    of_message: Fields = lambda value: {}
    of_value: Fields = lambda message: {}


_SAME_FIELDS = FieldMapping()


def _mapped_call(
    method: str,
    request: type,
    response: type,
    asked: FieldMapping = _SAME_FIELDS,
    answered: FieldMapping = _SAME_FIELDS,
) -> ReplicationCall:
    described = _METHODS[method]
    request_class = GetMessageClass(described.input_type)
    encode_request, decode_request = _codec(request, request_class, asked, service.parse)
    encode_response, decode_response = _codec(
        response, GetMessageClass(described.output_type), answered, message_mapping.parse
    )
    return ReplicationCall(
        method=method,
        request=request,
        request_class=request_class,
        encode_request=encode_request,
        decode_request=decode_request,
        encode_response=encode_response,
        decode_response=decode_response,
    )


def _codec(
    value_type: type, message_class: Any, differing: FieldMapping, parse: Callable[[Any, bytes], Any]
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    def encode(value: Any) -> bytes:
        data: bytes = to_message(value, message_class, **differing.of_message(value)).SerializeToString()
        return data

    def decode(data: bytes) -> Any:
        message = parse(message_class, data)
        return to_value(message, value_type, **differing.of_value(message))

    return encode, decode


def _for_controller(fields: Fields) -> Fields:
    """Mark the request as forwarded by a broker, so that only the controller accepts it."""
    return lambda message: {**fields(message), "is_for_controller": True}


CALLS = (
    _mapped_call("LeaderAndIsr", LeaderAndIsr, LeaderAndIsrResponse),
    _mapped_call("StopReplica", StopReplica, StopReplicaResponse),
    _mapped_call(
        "UpdateMetadata",
        UpdateMetadata,
        UpdateMetadataResponse,
        FieldMapping(controller_call_messages.metadata_message, controller_call_messages.metadata),
    ),
    ReplicationCall(
        method="Fetch",
        request=ReplicaFetch,
        request_class=replication_pb2.ReplicaFetchRequest,
        encode_request=fetch_messages.encode_fetch,
        decode_request=fetch_messages.decode_fetch,
        encode_response=fetch_messages.encode_fetch_response,
        decode_response=fetch_messages.decode_fetch_response,
    ),
    _mapped_call("DescribeFiles", DescribeFiles, DescribeFilesResponse),
    _mapped_call("ReadFile", ReadReplicaFile, ReadReplicaFileResponse),
    _mapped_call(
        "AlterPartitionReassignments",
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        FieldMapping(
            controller_call_messages.reassignments_message, _for_controller(controller_call_messages.reassignments)
        ),
    ),
    _mapped_call(
        "ElectLeaders",
        ElectLeadersRequest,
        ElectLeadersResponse,
        FieldMapping(controller_call_messages.elections_message, _for_controller(controller_call_messages.elections)),
        FieldMapping(controller_call_messages.elected, controller_call_messages.elected_value),
    ),
    _mapped_call("ControlledShutdown", ControlledShutdownRequest, ControlledShutdownResponse),
    _mapped_call("AppendHistory", AppendHistory, AppendHistoryResponse),
    _mapped_call("WriteTxnMarkers", WriteTxnMarkers, WriteTxnMarkersResponse),
    _mapped_call("AddPartitionsToTxn", AddPartitions, AddPartitionsResponse),
    _mapped_call("DescribePositions", DescribePositions, DescribePositionsResponse),
)
