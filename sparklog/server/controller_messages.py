"""What the controller says to brokers, as messages of the service `Replication` and back."""

from __future__ import annotations

from typing import Any

from sparklog.base.addresses import Address
from sparklog.base.ids import TopicPartition
from sparklog.cluster.messages import TopicState, UpdateMetadata, UpdateMetadataResponse
from sparklog.cluster.model import BrokerInfo, PartitionInfo
from sparklog.replica.messages import (
    LeaderAndIsr,
    LeaderAndIsrResponse,
    PartitionState,
    StopPartition,
    StopReplica,
    StopReplicaResponse,
)
from sparklog.server.peer_values import errors_of, outcomes_of, parse, read_topic_id, serialize, texts_by
from sparklog.v1 import replication_pb2 as pb

# LeaderAndIsr


def encode_leader_and_isr(request: LeaderAndIsr) -> bytes:
    return serialize(
        pb.LeaderAndIsrRequest(
            controller_id=request.controller_id,
            controller_epoch=request.controller_epoch,
            broker_epoch=request.broker_epoch,
            number=request.number,
            partitions=[
                pb.PartitionState(
                    topic=state.name.topic,
                    partition=state.name.partition,
                    topic_id=state.topic_id.bytes,
                    leader=state.leader,
                    leader_epoch=state.leader_epoch,
                    isr=state.isr,
                    replicas=state.replicas,
                    adding=state.adding,
                    removing=state.removing,
                    partition_epoch=state.partition_epoch,
                    is_new=state.is_new,
                )
                for state in request.partitions
            ],
            overrides=texts_by(request.overrides),
        )
    )


def decode_leader_and_isr(data: bytes) -> LeaderAndIsr:
    message = parse(pb.LeaderAndIsrRequest, data)
    return LeaderAndIsr(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch,
        number=message.number,
        partitions=tuple(
            PartitionState(
                name=TopicPartition(state.topic, state.partition),
                topic_id=read_topic_id(state.topic_id),
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=tuple(state.isr),
                replicas=tuple(state.replicas),
                adding=tuple(state.adding),
                removing=tuple(state.removing),
                partition_epoch=state.partition_epoch,
                is_new=state.is_new,
            )
            for state in message.partitions
        ),
        overrides={name: dict(configs.configs) for name, configs in message.overrides.items()},
    )


def encode_leader_and_isr_response(response: LeaderAndIsrResponse) -> bytes:
    return serialize(pb.LeaderAndIsrResponse(errors=outcomes_of(response.errors)))


def decode_leader_and_isr_response(data: bytes) -> LeaderAndIsrResponse:
    return LeaderAndIsrResponse(errors=errors_of(parse(pb.LeaderAndIsrResponse, data).errors))


# StopReplica


def encode_stop_replica(request: StopReplica) -> bytes:
    return serialize(
        pb.StopReplicaRequest(
            controller_id=request.controller_id,
            controller_epoch=request.controller_epoch,
            broker_epoch=request.broker_epoch,
            number=request.number,
            partitions=[
                pb.StopPartition(
                    topic=part.name.topic,
                    partition=part.name.partition,
                    leader_epoch=part.leader_epoch,
                    delete=part.delete,
                )
                for part in request.partitions
            ],
        )
    )


def decode_stop_replica(data: bytes) -> StopReplica:
    message = parse(pb.StopReplicaRequest, data)
    return StopReplica(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch,
        number=message.number,
        partitions=tuple(
            StopPartition(
                name=TopicPartition(part.topic, part.partition), leader_epoch=part.leader_epoch, delete=part.delete
            )
            for part in message.partitions
        ),
    )


def encode_stop_replica_response(response: StopReplicaResponse) -> bytes:
    return serialize(pb.StopReplicaResponse(errors=outcomes_of(response.errors)))


def decode_stop_replica_response(data: bytes) -> StopReplicaResponse:
    return StopReplicaResponse(errors=errors_of(parse(pb.StopReplicaResponse, data).errors))


# UpdateMetadata


def encode_update_metadata(request: UpdateMetadata) -> bytes:
    return serialize(
        pb.UpdateMetadataRequest(
            controller_id=request.controller_id,
            controller_epoch=request.controller_epoch,
            broker_epoch=request.broker_epoch,
            number=request.number,
            brokers=[_broker_message(broker) for broker in request.brokers],
            topics=[_topic_message(topic) for topic in request.topics],
            deleted=request.deleted,
            is_full=request.is_full,
            broker_overrides=texts_by(request.broker_overrides),
        )
    )


def decode_update_metadata(data: bytes) -> UpdateMetadata:
    message = parse(pb.UpdateMetadataRequest, data)
    return UpdateMetadata(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch,
        number=message.number,
        brokers=tuple(_broker(broker) for broker in message.brokers),
        topics=tuple(_topic(topic) for topic in message.topics),
        deleted=tuple(message.deleted),
        is_full=message.is_full,
        broker_overrides={broker: dict(configs.configs) for broker, configs in message.broker_overrides.items()},
    )


def _broker_message(broker: BrokerInfo) -> pb.BrokerState:
    return pb.BrokerState(
        broker_id=broker.broker_id,
        grpc_address=broker.grpc_address,
        listeners=[pb.Listener(name=name, host=at.host, port=at.port) for name, at in broker.listeners.items()],
        rack=broker.rack,
        version=broker.version,
        epoch=broker.epoch,
    )


def _broker(message: Any) -> BrokerInfo:
    return BrokerInfo(
        broker_id=message.broker_id,
        grpc_address=message.grpc_address,
        listeners={listener.name: Address(listener.host, listener.port) for listener in message.listeners},
        rack=message.rack,
        version=message.version,
        epoch=message.epoch,
    )


def _topic_message(topic: TopicState) -> pb.TopicState:
    return pb.TopicState(
        name=topic.name,
        topic_id=topic.topic_id.bytes,
        partitions=[
            pb.PartitionState(
                partition=number,
                leader=part.leader,
                leader_epoch=part.leader_epoch,
                isr=part.in_sync_replicas,
                replicas=part.replicas,
                adding=part.adding,
                removing=part.removing,
                partition_epoch=part.partition_epoch,
            )
            for number, part in enumerate(topic.partitions)
        ],
        overrides=dict(topic.overrides),
    )


def _topic(message: Any) -> TopicState:
    return TopicState(
        name=message.name,
        topic_id=read_topic_id(message.topic_id),
        partitions=tuple(
            PartitionInfo(
                leader=part.leader,
                leader_epoch=part.leader_epoch,
                replicas=tuple(part.replicas),
                in_sync_replicas=tuple(part.isr),
                adding=tuple(part.adding),
                removing=tuple(part.removing),
                partition_epoch=part.partition_epoch,
            )
            for part in message.partitions
        ),
        overrides=dict(message.overrides),
    )


def encode_nothing(_: Any) -> bytes:
    return b""


def decode_update_metadata_response(_: bytes) -> UpdateMetadataResponse:
    return UpdateMetadataResponse()
