"""The service `Admin`: topics, configurations, and descriptions of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice

from sparklog.base.acls import AclBindingFilter
from sparklog.base.message_mapping import to_message, to_value
from sparklog.broker.apis import (
    acls,
    alter_configs,
    alter_replica_log_dirs,
    client_quotas,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topics,
    elect_leaders,
    list_topics,
    partition_reassignments,
)
from sparklog.broker.apis.alter_configs import MAX_KEYS, ConfigChange, ConfigOperation, KeyChange
from sparklog.broker.node import Broker
from sparklog.broker.resources import ConfigResource
from sparklog.server.grpc import service
from sparklog.server.grpc.call import GrpcCall
from sparklog.server.grpc.controller_call_messages import elected, elections, reassignments
from sparklog.server.grpc.errors import error_message
from sparklog.server.grpc.service import servicer_method
from sparklog.v1 import admin_pb2


class AdminServicer:
    """Translation of the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    CreateTopics = servicer_method(
        create_topics.API, create_topics.CreateTopicsRequest, admin_pb2.CreateTopicsResponse, mutates=True
    )
    ListTopics = servicer_method(list_topics.API, list_topics.ListTopicsRequest, admin_pb2.ListTopicsResponse)
    CreatePartitions = servicer_method(
        create_partitions.API,
        create_partitions.CreatePartitionsRequest,
        admin_pb2.CreatePartitionsResponse,
        mutates=True,
    )
    DescribeConfigs = servicer_method(
        describe_configs.API,
        describe_configs.DescribeConfigsRequest,
        admin_pb2.DescribeConfigsResponse,
        request_fields=lambda request: {"resources": _queries(request.resources)},
    )
    AlterConfigs = servicer_method(
        alter_configs.INCREMENTAL_ALTER_CONFIGS,
        alter_configs.IncrementalAlterConfigsRequest,
        admin_pb2.AlterConfigsResponse,
        request_fields=lambda request: {"resources": [_change(change) for change in request.changes]},
    )
    DeleteRecords = servicer_method(
        delete_records.API, delete_records.DeleteRecordsRequest, admin_pb2.DeleteRecordsResponse
    )
    DescribeCluster = servicer_method(
        describe_cluster.API, describe_cluster.DescribeClusterRequest, admin_pb2.DescribeClusterResponse
    )
    AlterPartitionReassignments = servicer_method(
        partition_reassignments.ALTER_PARTITION_REASSIGNMENTS,
        partition_reassignments.AlterPartitionReassignmentsRequest,
        admin_pb2.AlterPartitionReassignmentsResponse,
        request_fields=reassignments,
    )
    ListPartitionReassignments = servicer_method(
        partition_reassignments.LIST_PARTITION_REASSIGNMENTS,
        partition_reassignments.ListPartitionReassignmentsRequest,
        admin_pb2.ListPartitionReassignmentsResponse,
    )
    ElectLeaders = servicer_method(
        elect_leaders.API,
        elect_leaders.ElectLeadersRequest,
        admin_pb2.ElectLeadersResponse,
        request_fields=elections,
        response_fields=elected,
    )

    DescribeAcls = servicer_method(
        acls.DESCRIBE_ACLS,
        acls.DescribeAclsRequest,
        admin_pb2.DescribeAclsResponse,
        request_fields=lambda request: {"filter": to_value(request.filter, AclBindingFilter)},
    )
    CreateAcls = servicer_method(acls.CREATE_ACLS, acls.CreateAclsRequest, admin_pb2.CreateAclsResponse)
    DescribeClientQuotas = servicer_method(
        client_quotas.DESCRIBE_CLIENT_QUOTAS,
        client_quotas.DescribeClientQuotasRequest,
        admin_pb2.DescribeClientQuotasResponse,
    )
    AlterClientQuotas = servicer_method(
        client_quotas.ALTER_CLIENT_QUOTAS,
        client_quotas.AlterClientQuotasRequest,
        admin_pb2.AlterClientQuotasResponse,
    )
    DeleteAcls = servicer_method(acls.DELETE_ACLS, acls.DeleteAclsRequest, admin_pb2.DeleteAclsResponse)

    async def DeleteTopics(
        self, request: admin_pb2.DeleteTopicsRequest, call: GrpcCall
    ) -> admin_pb2.DeleteTopicsResponse:
        """Delete topics by name; each result has only the name."""
        wanted = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.TopicToDelete(name=name) for name in request.names], mutate=call.mutation_quota
        )
        response = await call.serve(delete_topics.API, wanted)
        return admin_pb2.DeleteTopicsResponse(
            topics=[
                admin_pb2.TopicResult(name=topic.name or "", error=error_message(topic.error))
                for topic in response.topics
            ]
        )

    async def DescribeTopics(
        self, request: admin_pb2.DescribeTopicsRequest, call: GrpcCall
    ) -> admin_pb2.DescribeTopicsResponse:
        """Describe topics in parts, so that topics with many partitions do not block other requests."""

        async def describe(wanted: describe_topics.DescribeTopicsRequest) -> admin_pb2.DescribeTopicsResponse:
            response = await call.serve(describe_topics.API, wanted)
            answer: admin_pb2.DescribeTopicsResponse = to_message(response, admin_pb2.DescribeTopicsResponse)
            return answer

        wanted = to_value(request, describe_topics.DescribeTopicsRequest, omits_missing=False)
        parts = await self.broker.handlers[describe_topics.SPLIT](wanted)
        if len(parts) == 1:
            return await describe(parts[0])
        answer: admin_pb2.DescribeTopicsResponse = await service.in_parts(parts, describe, self.broker.slices)
        return answer

    AlterReplicaLogDirs = servicer_method(
        alter_replica_log_dirs.API,
        alter_replica_log_dirs.AlterReplicaLogDirsRequest,
        admin_pb2.AlterReplicaLogDirsResponse,
    )

    async def DescribeLogDirs(self, request: admin_pb2.DescribeLogDirsRequest, call: GrpcCall) -> bytes:
        wanted = describe_log_dirs.DescribeLogDirsRequest(topics=dict.fromkeys(request.topics) or None)
        response = await call.serve(describe_log_dirs.API, wanted)
        return await asyncio.to_thread(_log_dirs, response)


def _queries(resources: Iterable[admin_pb2.ConfigResource]) -> list[describe_configs.ConfigQuery]:
    return [describe_configs.ConfigQuery(resource=to_value(resource, ConfigResource)) for resource in resources]


def _change(change: admin_pb2.ConfigChange) -> ConfigChange:
    most = MAX_KEYS + 1
    values = [
        KeyChange(name=name, operation=ConfigOperation.SET, value=value)
        for name, value in islice(change.set.items(), most)
    ]
    unset = [KeyChange(name=name, operation=ConfigOperation.DELETE) for name in change.unset[:most]]
    return ConfigChange(resource=to_value(change.resource, ConfigResource), changes=values + unset)


def _log_dirs(response: describe_log_dirs.DescribeLogDirsResponse) -> bytes:
    data: bytes = to_message(response, admin_pb2.DescribeLogDirsResponse).SerializeToString()
    return data
