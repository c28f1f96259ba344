"""The service `Admin`: topics, configurations, and what the cluster looks like."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import cast

from sparklog.base.errors import KafkaError, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topics,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
    list_topics,
)
from sparklog.broker.apis.incremental_alter_configs import MAX_KEYS, ConfigChange, KeyChange, Operation
from sparklog.broker.config_entries import ConfigEntry
from sparklog.broker.node import Broker
from sparklog.broker.resources import ConfigResource
from sparklog.runtime.slices import in_parts
from sparklog.server import grpc_service
from sparklog.server.grpc_errors import error_message
from sparklog.v1 import admin_pb2

DESCRIBED_TOGETHER = 200
"""Partitions: work of a few milliseconds."""


class AdminServicer:
    """Translates the service's messages for one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def CreateTopics(self, request: admin_pb2.CreateTopicsRequest) -> admin_pb2.CreateTopicsResponse:
        wanted = create_topics.CreateTopicsRequest(
            topics=[_new_topic(topic) for topic in request.topics], validate_only=request.validate_only
        )
        response = await self._broker.serve(create_topics.API, wanted)
        return admin_pb2.CreateTopicsResponse(topics=[_topic_result(topic) for topic in response.topics])

    async def DeleteTopics(self, request: admin_pb2.DeleteTopicsRequest) -> admin_pb2.DeleteTopicsResponse:
        wanted = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.TopicToDelete(name=name) for name in request.names]
        )
        response = await self._broker.serve(delete_topics.API, wanted)
        return admin_pb2.DeleteTopicsResponse(
            topics=[
                admin_pb2.TopicResult(name=topic.name or "", error=error_message(topic.error))
                for topic in response.topics
            ]
        )

    async def ListTopics(self, request: admin_pb2.ListTopicsRequest) -> admin_pb2.ListTopicsResponse:
        wanted = list_topics.ListTopicsRequest(include_internal=request.include_internal)
        response = await self._broker.serve(list_topics.API, wanted)
        return admin_pb2.ListTopicsResponse(
            topics=[
                admin_pb2.TopicListing(name=topic.name, partitions=topic.partitions, internal=topic.is_internal)
                for topic in response.topics
            ]
        )

    async def DescribeTopics(self, request: admin_pb2.DescribeTopicsRequest) -> admin_pb2.DescribeTopicsResponse:
        """Topics with many partitions, be they named or all that there are, are described one after the other."""
        metadata = self._broker.metadata

        def weigh(name: str) -> int:
            topic = metadata.find(name)
            return len(topic.partitions) if topic else 1

        async def describe(names: Sequence[str]) -> admin_pb2.DescribeTopicsResponse:
            wanted = describe_topics.DescribeTopicsRequest(
                names=names, allow_auto_topic_creation=request.allow_auto_topic_creation
            )
            response = await self._broker.serve(describe_topics.API, wanted)
            there = response.topics
            if not request.names:  # one may have been deleted meanwhile
                there = [topic for topic in there if not isinstance(topic.error, UnknownTopicOrPartition)]
            return admin_pb2.DescribeTopicsResponse(topics=[_topic(topic) for topic in there])

        names = request.names or [topic.name for topic in metadata]
        parts = in_parts(names, weigh, DESCRIBED_TOGETHER)
        if len(parts) == 1:
            return await describe(parts[0])
        answer: admin_pb2.DescribeTopicsResponse = await grpc_service.in_parts(parts, describe, self._broker.slices)
        return answer

    async def CreatePartitions(self, request: admin_pb2.CreatePartitionsRequest) -> admin_pb2.CreatePartitionsResponse:
        wanted = create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.PartitionCount(name=topic.name, total=topic.total) for topic in request.topics],
            validate_only=request.validate_only,
        )
        response = await self._broker.serve(create_partitions.API, wanted)
        return admin_pb2.CreatePartitionsResponse(topics=[_topic_result(topic) for topic in response.topics])

    async def DescribeConfigs(self, request: admin_pb2.DescribeConfigsRequest) -> admin_pb2.DescribeConfigsResponse:
        wanted = describe_configs.DescribeConfigsRequest(
            resources=[describe_configs.ConfigQuery(resource=_resource(resource)) for resource in request.resources]
        )
        response = await self._broker.serve(describe_configs.API, wanted)
        return admin_pb2.DescribeConfigsResponse(
            resources=[
                admin_pb2.ResourceConfigs(
                    resource=_resource_message(found.resource),
                    error=error_message(found.error),
                    entries=[_entry(entry) for entry in found.entries],
                )
                for found in response.resources
            ]
        )

    async def AlterConfigs(self, request: admin_pb2.AlterConfigsRequest) -> admin_pb2.AlterConfigsResponse:
        wanted = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[_change(change) for change in request.changes], validate_only=request.validate_only
        )
        response = await self._broker.serve(incremental_alter_configs.API, wanted)
        return admin_pb2.AlterConfigsResponse(
            resources=[
                admin_pb2.ResourceResult(resource=_resource_message(done.resource), error=error_message(done.error))
                for done in response.resources
            ]
        )

    async def DeleteRecords(self, request: admin_pb2.DeleteRecordsRequest) -> admin_pb2.DeleteRecordsResponse:
        wanted = delete_records.DeleteRecordsRequest(
            partitions=[
                delete_records.RecordsToDelete(
                    topic=part.topic, partition=part.partition, before_offset=part.before_offset
                )
                for part in request.partitions
            ]
        )
        response = await self._broker.serve(delete_records.API, wanted)
        return admin_pb2.DeleteRecordsResponse(
            partitions=[
                admin_pb2.RecordsDeleted(
                    topic=part.topic,
                    partition=part.partition,
                    error=error_message(part.error),
                    log_start_offset=part.log_start_offset,
                )
                for part in response.partitions
            ]
        )

    async def DescribeCluster(self, request: admin_pb2.DescribeClusterRequest) -> admin_pb2.DescribeClusterResponse:
        response = await self._broker.serve(describe_cluster.API, describe_cluster.DescribeClusterRequest())
        return admin_pb2.DescribeClusterResponse(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers=[
                admin_pb2.Broker(
                    id=broker.broker_id, grpc_address=broker.grpc_address, rack=broker.rack, version=broker.version
                )
                for broker in response.brokers
            ],
        )

    async def DescribeLogDirs(self, request: admin_pb2.DescribeLogDirsRequest) -> bytes:
        wanted = describe_log_dirs.DescribeLogDirsRequest(topics=dict.fromkeys(request.topics) or None)
        response = await self._broker.serve(describe_log_dirs.API, wanted)
        return await asyncio.to_thread(_log_dirs, response)

    async def AlterPartitionReassignments(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        wanted = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            targets={
                TopicPartition(part.topic, part.partition): tuple(part.replicas) or None for part in request.partitions
            },
            may_resize=not request.keep_replication_factor,
        )
        response = await self._broker.serve(alter_partition_reassignments.API, wanted)
        return admin_pb2.AlterPartitionReassignmentsResponse(partitions=_changed(response.errors))

    async def ListPartitionReassignments(
        self, request: admin_pb2.ListPartitionReassignmentsRequest
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        wanted = list_partition_reassignments.ListPartitionReassignmentsRequest(
            partitions=_names(request.partitions) or None
        )
        response = await self._broker.serve(list_partition_reassignments.API, wanted)
        return admin_pb2.ListPartitionReassignmentsResponse(
            partitions=[
                admin_pb2.PartitionReassignment(
                    topic=name.topic,
                    partition=name.partition,
                    replicas=info.replicas,
                    adding=info.adding,
                    removing=info.removing,
                )
                for name, info in response.moving.items()
            ]
        )

    async def ElectLeaders(self, request: admin_pb2.ElectLeadersRequest) -> admin_pb2.ElectLeadersResponse:
        wanted = elect_leaders.ElectLeadersRequest(
            partitions=None if request.all_partitions else _names(request.partitions),
            is_unclean=request.type == admin_pb2.UNCLEAN,
        )
        response = await self._broker.serve(elect_leaders.API, wanted)
        return admin_pb2.ElectLeadersResponse(
            partitions=[
                admin_pb2.PartitionElected(
                    topic=name.topic,
                    partition=name.partition,
                    error=error_message(error),
                    leader=response.leaders.get(name, -1),
                )
                for name, error in response.errors.items()
            ]
        )


def _names(partitions: Iterable[admin_pb2.PartitionId]) -> list[TopicPartition]:
    return [TopicPartition(part.topic, part.partition) for part in partitions]


def _changed(errors: Mapping[TopicPartition, KafkaError | None]) -> list[admin_pb2.PartitionChanged]:
    return [
        admin_pb2.PartitionChanged(topic=name.topic, partition=name.partition, error=error_message(error))
        for name, error in errors.items()
    ]


def _new_topic(topic: admin_pb2.NewTopic) -> create_topics.NewTopic:
    return create_topics.NewTopic(
        name=topic.name,
        partitions=topic.partitions if topic.HasField("partitions") else None,
        replication_factor=topic.replication_factor if topic.HasField("replication_factor") else None,
        configs=_mapping(topic.configs),
    )


def _topic_result(topic: create_topics.TopicResult | create_partitions.TopicGrown) -> admin_pb2.TopicResult:
    return admin_pb2.TopicResult(name=topic.name, error=error_message(topic.error), partitions=topic.partitions)


def _topic(topic: describe_topics.TopicDescription) -> admin_pb2.TopicDescription:
    return admin_pb2.TopicDescription(
        name=topic.name,
        error=error_message(topic.error),
        internal=topic.is_internal,
        partitions=[_partition(part) for part in topic.partitions],
        configs=dict(topic.configs),
        topic_id=str(topic.topic_id or ""),
    )


def _partition(part: describe_topics.PartitionDescription) -> admin_pb2.PartitionDescription:
    return admin_pb2.PartitionDescription(
        partition=part.partition,
        error=error_message(part.error),
        leader=part.leader,
        leader_epoch=part.leader_epoch,
        replicas=part.replicas,
        in_sync_replicas=part.in_sync_replicas,
        log_start_offset=part.log_start_offset,
        high_watermark=part.high_watermark,
        log_end_offset=part.log_end_offset,
        size_bytes=part.size_bytes,
    )


def _resource(resource: admin_pb2.ConfigResource) -> ConfigResource:
    return ConfigResource(resource.type, resource.name)


def _resource_message(resource: ConfigResource) -> admin_pb2.ConfigResource:
    return admin_pb2.ConfigResource(type=cast("admin_pb2.ResourceType", resource.type), name=resource.name)


def _change(change: admin_pb2.ConfigChange) -> ConfigChange:
    most = MAX_KEYS + 1
    values = [
        KeyChange(name=name, operation=Operation.SET, value=value) for name, value in islice(change.set.items(), most)
    ]
    unset = [KeyChange(name=name, operation=Operation.DELETE) for name in change.unset[:most]]
    return ConfigChange(resource=_resource(change.resource), changes=values + unset)


def _entry(entry: ConfigEntry) -> admin_pb2.ConfigEntry:
    return admin_pb2.ConfigEntry(
        name=entry.name,
        value=entry.value or "",
        source=cast("admin_pb2.ConfigSource", entry.source.value),
        documentation=entry.documentation,
        read_only=entry.is_read_only,
    )


def _log_dirs(response: describe_log_dirs.DescribeLogDirsResponse) -> bytes:
    message = admin_pb2.DescribeLogDirsResponse(
        broker_id=response.broker_id,
        cluster_id=response.cluster_id,
        log_dirs=[_log_dir(log_dir) for log_dir in response.log_dirs],
    )
    data: bytes = message.SerializeToString()
    return data


def _log_dir(log_dir: describe_log_dirs.LogDir) -> admin_pb2.LogDir:
    return admin_pb2.LogDir(
        path=log_dir.path,
        error=error_message(log_dir.error),
        partitions=[
            admin_pb2.LogDirPartition(
                topic=part.topic,
                partition=part.partition,
                size_bytes=part.size_bytes,
                log_start_offset=part.log_start_offset,
                high_watermark=part.high_watermark,
                log_end_offset=part.log_end_offset,
            )
            for part in log_dir.partitions
        ],
        is_full=log_dir.is_full,
    )


def _mapping(texts: Mapping[str, str]) -> dict[str, str]:
    return dict(texts)
