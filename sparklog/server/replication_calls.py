"""What brokers say to one another: the methods of the service `Replication`, by the values that they carry.

value ─ encode ─▶ bytes ═ gRPC ═▶ bytes ─ decode ─▶ value          the request at the caller, then at the callee;
                                                                    the answer the other way round
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparklog.broker.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from sparklog.broker.apis.controlled_shutdown import ControlledShutdownRequest
from sparklog.broker.apis.elect_leaders import ElectLeadersRequest
from sparklog.cluster.history import AppendHistory
from sparklog.cluster.messages import UpdateMetadata
from sparklog.replica.messages import DescribeFiles, LeaderAndIsr, ReadFile, ReplicaFetch, StopReplica
from sparklog.server import (
    controller_call_messages,
    controller_messages,
    fetch_messages,
    file_messages,
    history_messages,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """One method of the service, and how its request and its answer travel. Decoding raises InvalidRequest."""

    method: str
    request: type
    encode_request: Callable[[Any], bytes]
    decode_request: Callable[[bytes], Any]
    encode_response: Callable[[Any], bytes]
    decode_response: Callable[[bytes], Any]


CALLS = (
    Call(
        method="LeaderAndIsr",
        request=LeaderAndIsr,
        encode_request=controller_messages.encode_leader_and_isr,
        decode_request=controller_messages.decode_leader_and_isr,
        encode_response=controller_messages.encode_leader_and_isr_response,
        decode_response=controller_messages.decode_leader_and_isr_response,
    ),
    Call(
        method="StopReplica",
        request=StopReplica,
        encode_request=controller_messages.encode_stop_replica,
        decode_request=controller_messages.decode_stop_replica,
        encode_response=controller_messages.encode_stop_replica_response,
        decode_response=controller_messages.decode_stop_replica_response,
    ),
    Call(
        method="UpdateMetadata",
        request=UpdateMetadata,
        encode_request=controller_messages.encode_update_metadata,
        decode_request=controller_messages.decode_update_metadata,
        encode_response=controller_messages.encode_nothing,
        decode_response=controller_messages.decode_update_metadata_response,
    ),
    Call(
        method="Fetch",
        request=ReplicaFetch,
        encode_request=fetch_messages.encode_fetch,
        decode_request=fetch_messages.decode_fetch,
        encode_response=fetch_messages.encode_fetch_response,
        decode_response=fetch_messages.decode_fetch_response,
    ),
    Call(
        method="DescribeFiles",
        request=DescribeFiles,
        encode_request=file_messages.encode_describe,
        decode_request=file_messages.decode_describe,
        encode_response=file_messages.encode_described,
        decode_response=file_messages.decode_described,
    ),
    Call(
        method="ReadFile",
        request=ReadFile,
        encode_request=file_messages.encode_read,
        decode_request=file_messages.decode_read,
        encode_response=file_messages.encode_piece,
        decode_response=file_messages.decode_piece,
    ),
    Call(
        method="AlterPartitionReassignments",
        request=AlterPartitionReassignmentsRequest,
        encode_request=controller_call_messages.encode_reassignments,
        decode_request=controller_call_messages.decode_reassignments,
        encode_response=controller_call_messages.encode_reassignments_response,
        decode_response=controller_call_messages.decode_reassignments_response,
    ),
    Call(
        method="ElectLeaders",
        request=ElectLeadersRequest,
        encode_request=controller_call_messages.encode_elections,
        decode_request=controller_call_messages.decode_elections,
        encode_response=controller_call_messages.encode_elections_response,
        decode_response=controller_call_messages.decode_elections_response,
    ),
    Call(
        method="ControlledShutdown",
        request=ControlledShutdownRequest,
        encode_request=controller_call_messages.encode_shutdown,
        decode_request=controller_call_messages.decode_shutdown,
        encode_response=controller_call_messages.encode_shutdown_response,
        decode_response=controller_call_messages.decode_shutdown_response,
    ),
    Call(
        method="AppendHistory",
        request=AppendHistory,
        encode_request=history_messages.encode_append,
        decode_request=history_messages.decode_append,
        encode_response=history_messages.encode_appended,
        decode_response=history_messages.decode_appended,
    ),
)
