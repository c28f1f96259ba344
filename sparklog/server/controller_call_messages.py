"""What brokers ask of the controller, as messages of the service `Replication` and back.

The messages are those that clients send to any broker (admin.proto), but for ControlledShutdown, which is no client's.
"""

from __future__ import annotations

from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.broker.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from sparklog.broker.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from sparklog.broker.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from sparklog.server.grpc_errors import error_message
from sparklog.server.peer_values import parse, read_error, serialize
from sparklog.v1 import admin_pb2, replication_pb2

NOBODY = -1


def encode_reassignments(request: AlterPartitionReassignmentsRequest) -> bytes:
    return serialize(
        admin_pb2.AlterPartitionReassignmentsRequest(
            partitions=[
                admin_pb2.PartitionTarget(topic=name.topic, partition=name.partition, replicas=target or ())
                for name, target in request.targets.items()
            ],
            keep_replication_factor=not request.may_resize,
        )
    )


def decode_reassignments(data: bytes) -> AlterPartitionReassignmentsRequest:
    message = parse(admin_pb2.AlterPartitionReassignmentsRequest, data)
    return AlterPartitionReassignmentsRequest(
        targets={_name(part): tuple(part.replicas) or None for part in message.partitions},
        may_resize=not message.keep_replication_factor,
        is_for_controller=True,
    )


def encode_reassignments_response(response: AlterPartitionReassignmentsResponse) -> bytes:
    return serialize(
        admin_pb2.AlterPartitionReassignmentsResponse(
            partitions=[
                admin_pb2.PartitionChanged(topic=name.topic, partition=name.partition, error=error_message(error))
                for name, error in response.errors.items()
            ]
        )
    )


def decode_reassignments_response(data: bytes) -> AlterPartitionReassignmentsResponse:
    message = parse(admin_pb2.AlterPartitionReassignmentsResponse, data)
    return AlterPartitionReassignmentsResponse(errors={_name(part): read_error(part) for part in message.partitions})


def encode_elections(request: ElectLeadersRequest) -> bytes:
    return serialize(
        admin_pb2.ElectLeadersRequest(
            type=admin_pb2.UNCLEAN if request.is_unclean else admin_pb2.PREFERRED,
            partitions=[
                admin_pb2.PartitionId(topic=name.topic, partition=name.partition) for name in request.partitions or ()
            ],
            all_partitions=request.partitions is None,
        )
    )


def decode_elections(data: bytes) -> ElectLeadersRequest:
    message = parse(admin_pb2.ElectLeadersRequest, data)
    return ElectLeadersRequest(
        partitions=None if message.all_partitions else [_name(part) for part in message.partitions],
        is_unclean=message.type == admin_pb2.UNCLEAN,
        is_for_controller=True,
    )


def encode_elections_response(response: ElectLeadersResponse) -> bytes:
    return serialize(
        admin_pb2.ElectLeadersResponse(
            partitions=[
                admin_pb2.PartitionElected(
                    topic=name.topic,
                    partition=name.partition,
                    error=error_message(error),
                    leader=response.leaders.get(name, NOBODY),
                )
                for name, error in response.errors.items()
            ]
        )
    )


def decode_elections_response(data: bytes) -> ElectLeadersResponse:
    message = parse(admin_pb2.ElectLeadersResponse, data)
    return ElectLeadersResponse(
        errors={_name(part): read_error(part) for part in message.partitions},
        leaders={_name(part): part.leader for part in message.partitions if part.leader != NOBODY},
    )


def encode_shutdown(request: ControlledShutdownRequest) -> bytes:
    return serialize(
        replication_pb2.ControlledShutdownRequest(broker_id=request.broker_id, broker_epoch=request.broker_epoch)
    )


def decode_shutdown(data: bytes) -> ControlledShutdownRequest:
    message = parse(replication_pb2.ControlledShutdownRequest, data)
    return ControlledShutdownRequest(broker_id=message.broker_id, broker_epoch=message.broker_epoch)


def encode_shutdown_response(response: ControlledShutdownResponse) -> bytes:
    return serialize(
        replication_pb2.ControlledShutdownResponse(
            remaining=[admin_pb2.PartitionId(topic=name.topic, partition=name.partition) for name in response.remaining]
        )
    )


def decode_shutdown_response(data: bytes) -> ControlledShutdownResponse:
    message = parse(replication_pb2.ControlledShutdownResponse, data)
    return ControlledShutdownResponse(remaining=[_name(part) for part in message.remaining])


def _name(part: Any) -> TopicPartition:
    return TopicPartition(part.topic, part.partition)
