"""Fields with different names in message and value, for calls between brokers and controller.

Reassignments and elections: the client's call to any broker, and the broker's call to the controller, use the same
messages of admin.proto. UpdateMetadata: partitions use LeaderAndIsr's message, without the fields for replicas.
"""

from __future__ import annotations

from typing import Any

from sparklog.base.acls import AclBinding
from sparklog.base.message_mapping import read_error, read_partitions, to_message, to_value
from sparklog.base.quotas import ClientQuota
from sparklog.broker.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from sparklog.broker.apis.partition_reassignments import AlterPartitionReassignmentsRequest
from sparklog.cluster.messages import TopicState, UpdateMetadata
from sparklog.cluster.model import PartitionInfo
from sparklog.server.grpc.errors import error_message
from sparklog.v1 import admin_pb2, replication_pb2

NO_LEADER = -1
Fields = dict[str, Any]


def reassignments(message: admin_pb2.AlterPartitionReassignmentsRequest) -> Fields:
    """Return the fields of the value."""
    targets = zip(read_partitions(message.partitions), message.partitions, strict=True)
    return {
        "targets": {name: tuple(part.replicas) or None for name, part in targets},
        "may_resize": not message.keep_replication_factor,
    }


def reassignments_message(request: AlterPartitionReassignmentsRequest) -> Fields:
    """Return the message's fields with other names. A target without replicas cancels the move."""
    targets = request.targets.items()
    return {
        "partitions": [to_message(name, admin_pb2.PartitionTarget, replicas=target or ()) for name, target in targets],
        "keep_replication_factor": not request.may_resize,
    }


def elections(message: admin_pb2.ElectLeadersRequest) -> Fields:
    """Return the fields of the value."""
    return {
        "partitions": None if message.all_partitions else read_partitions(message.partitions),
        "is_unclean": message.type == admin_pb2.UNCLEAN,
    }


def elections_message(request: ElectLeadersRequest) -> Fields:
    """Return the message's fields with other names."""
    return {
        "type": admin_pb2.UNCLEAN if request.is_unclean else admin_pb2.PREFERRED,
        "partitions": [to_message(name, admin_pb2.PartitionId) for name in request.partitions or ()],
        "all_partitions": request.partitions is None,
    }


def elected(response: ElectLeadersResponse) -> Fields:
    """Return the fields of the message."""
    return {
        "partitions": [
            to_message(
                name,
                admin_pb2.PartitionElected,
                error=error_message(error),
                leader=response.leaders.get(name, NO_LEADER),
            )
            for name, error in response.errors.items()
        ]
    }


def elected_value(message: admin_pb2.ElectLeadersResponse) -> Fields:
    """Return the value's fields.

    A partition without a new leader, NO_LEADER in the message, is not in `leaders`.
    """
    parts = list(zip(read_partitions(message.partitions), message.partitions, strict=True))
    return {
        "errors": {name: read_error(part) for name, part in parts},
        "leaders": {name: part.leader for name, part in parts if part.leader != NO_LEADER},
    }


def metadata_message(request: UpdateMetadata) -> Fields:
    """Return the message's fields with nested messages. None in the value is an unset field."""
    acls = None if request.acls is None else [to_message(each, admin_pb2.AclBinding) for each in sorted(request.acls)]
    quotas = None if request.quotas is None else [to_message(each, admin_pb2.ClientQuota) for each in request.quotas]
    client_metrics = None
    if request.client_metrics is not None:
        configs = {
            name: replication_pb2.TopicOverrides(configs=config) for name, config in request.client_metrics.items()
        }
        client_metrics = replication_pb2.ClientMetricsSubscriptions(subscriptions=configs)
    return {
        "topics": [_topic_message(topic) for topic in request.topics],
        "acls": None if acls is None else replication_pb2.AclList(acls=acls),
        "quotas": None if quotas is None else replication_pb2.QuotaList(quotas=quotas),
        "client_metrics": client_metrics,
    }


def metadata(message: replication_pb2.UpdateMetadataRequest) -> Fields:
    """Return the fields of the value."""
    acls = frozenset(to_value(each, AclBinding) for each in message.acls.acls) if message.HasField("acls") else None
    quotas = None
    if message.HasField("quotas"):
        quotas = tuple(to_value(each, ClientQuota) for each in message.quotas.quotas)
    client_metrics = None
    if message.HasField("client_metrics"):
        client_metrics = {name: dict(each.configs) for name, each in message.client_metrics.subscriptions.items()}
    topics = tuple(_topic(topic) for topic in message.topics)
    return {"topics": topics, "acls": acls, "quotas": quotas, "client_metrics": client_metrics}


def _topic_message(topic: TopicState) -> replication_pb2.TopicState:
    message: replication_pb2.TopicState = to_message(
        topic,
        replication_pb2.TopicState,
        partitions=[_partition_message(*each) for each in enumerate(topic.partitions)],
    )
    return message


def _partition_message(number: int, part: PartitionInfo) -> replication_pb2.PartitionState:
    return replication_pb2.PartitionState(
        partition=number,
        leader=part.leader,
        leader_epoch=part.leader_epoch,
        isr=part.in_sync_replicas,
        replicas=part.replicas,
        adding=part.adding,
        removing=part.removing,
        partition_epoch=part.partition_epoch,
    )


def _topic(message: Any) -> TopicState:
    state: TopicState = to_value(message, TopicState, partitions=tuple(_partition(part) for part in message.partitions))
    return state


def _partition(message: Any) -> PartitionInfo:
    info: PartitionInfo = to_value(message, PartitionInfo, in_sync_replicas=tuple(message.isr))
    return info
