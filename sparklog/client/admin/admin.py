"""The admin client: topics, their configuration, groups, transactions and the cluster.

`AsyncAdmin` is the implementation, `Admin` (sync.py) the same for use without an event loop. Every call is retried for
`default_api_timeout_ms` while no broker answers, except `describe_configs` of a broker. A call for several topics
raises the error of the first topic that was refused; the call still takes effect for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Unpack

from sparklog.base.acls import AclBinding, AclBindingFilter
from sparklog.base.clock import Clock, SystemClock
from sparklog.base.errors import (
    BrokerNotAvailable,
    ConfigError,
    KafkaError,
    RetriableError,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import read_error, to_message, to_value
from sparklog.base.quotas import ClientQuota, QuotaChange, QuotaFilter
from sparklog.client.admin.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ConfigValue,
    LogDirDescription,
    Reassignment,
    TopicDescription,
    TopicListing,
    to_config_values,
    to_log_dir,
    to_reassignment,
    to_topic,
)
from sparklog.client.admin.group_descriptions import GroupDescription, GroupListing, GroupOffset
from sparklog.client.admin.groups import GroupAdmin
from sparklog.client.admin.hanging_transactions import MAX_TIMEOUT_MS, HangingTransactions, leaders_of, search
from sparklog.client.admin.topic_descriptions import ask_leaders
from sparklog.client.admin.transaction_descriptions import (
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from sparklog.client.admin.transactions import Progress, TransactionAdmin
from sparklog.client.base import AsyncClient
from sparklog.client.cluster import Cluster
from sparklog.client.commits import Offsets
from sparklog.client.config import AdminConfig
from sparklog.client.connection import Connection, raise_error_of
from sparklog.client.offsets import ListedOffset, OffsetSpec, list_offsets
from sparklog.client.options import AdminOptions
from sparklog.client.retry import retrying
from sparklog.v1 import admin_pb2

EVERY_ACL = AclBindingFilter()


class AsyncAdmin(AsyncClient):
    """Client that manages topics, groups, transactions and brokers, for use on an event loop.

        async with AsyncAdmin(bootstrap_servers="127.0.0.1:9094") as admin:
            await admin.create_topic("orders", partitions=6, configs={"retention.ms": "86400000"})

    Options are those of AdminConfig; raises ConfigError for an invalid one.
    """

    def __init__(
        self, *, clock: Clock | None = None, random: Random | None = None, **options: Unpack[AdminOptions]
    ) -> None:
        self.config = AdminConfig.parse(options)
        self._cluster = Cluster(self.config, clock or SystemClock(), random or Random())
        self._groups = GroupAdmin(self._cluster)
        self._transactions = TransactionAdmin(self._cluster)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> int:
        """Create a topic, and return its number of partitions; None stands for the broker's default.

        Raises TopicAlreadyExists, InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidConfig or
        PolicyViolation. With `validate_only`, the broker checks the request and creates nothing.
        """
        topic = admin_pb2.NewTopic(
            name=name, partitions=partitions, replication_factor=replication_factor, configs=configs or {}
        )
        request = admin_pb2.CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        [result] = (await self._ask("CreateTopics", request)).topics
        count: int = result.partitions
        return count

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics with all their records; raises UnknownTopicOrPartition or TopicDeletionDisabled."""
        await self._ask("DeleteTopics", admin_pb2.DeleteTopicsRequest(names=list(names)))

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicListing]:
        """Return every topic, sorted by name."""
        answer = await self._ask("ListTopics", admin_pb2.ListTopicsRequest(include_internal=include_internal))
        listings = (
            TopicListing(name=topic.name, partitions=topic.partitions, internal=topic.internal)
            for topic in answer.topics
        )
        return sorted(listings, key=lambda topic: topic.name)

    async def describe_topics(self, names: Iterable[str], *, include_unsure: bool = False) -> list[TopicDescription]:
        """Return partitions, leaders, replicas, offsets and sizes of topics; raises UnknownTopicOrPartition.

        A partition has an error if it has no leader or its leader does not answer. include_unsure: set `unsure` of each
        topic, for which a broker reads the cluster store.
        """
        wanted = list(names)
        return await self._describe(wanted, include_unsure=include_unsure) if wanted else []

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Increase a topic to `total` partitions; raises InvalidPartitions if it has that many or more."""
        topic = admin_pb2.PartitionCount(name=name, total=total)
        await self._ask(
            "CreatePartitions", admin_pb2.CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
        )

    async def describe_configs(self, *, topic: str | None = None, broker: int | None = None) -> dict[str, ConfigValue]:
        """Return every configuration key of one topic or one broker, by name."""
        request = admin_pb2.DescribeConfigsRequest(resources=[_resource(topic, broker)])
        if broker is None:
            answer = await self._ask("DescribeConfigs", request)
        else:  # only the broker itself knows its static configuration
            connection = await self._cluster.broker(broker)
            answer = await connection.call(connection.admin.DescribeConfigs, request, self.config.request_timeout_ms)
        [result] = answer.resources
        raise_error_of(result)
        return to_config_values(result)

    async def alter_configs(
        self,
        topic: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Change single keys of a topic: `set` to values, `unset` to the broker's defaults; raises InvalidConfig."""
        change = admin_pb2.ConfigChange(resource=_resource(topic, None), set=set or {}, unset=list(unset))
        await self._ask("AlterConfigs", admin_pb2.AlterConfigsRequest(changes=[change], validate_only=validate_only))

    async def alter_broker_configs(
        self, broker: int, *, set: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        """Change single keys of a broker, if they can change while it runs; raises InvalidConfig."""
        change = admin_pb2.ConfigChange(resource=_resource(None, broker), set=set or {}, unset=list(unset))
        await self._ask("AlterConfigs", admin_pb2.AlterConfigsRequest(changes=[change]))

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete each partition's records below an offset (-1: all), and return the new log start offsets.

        Raises OffsetOutOfRange for an offset beyond the high watermark.
        """

        async def delete(leader: Connection, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            records = [
                admin_pb2.RecordsToDelete(topic=item.topic, partition=item.partition, before_offset=before[item])
                for item in partitions
            ]
            request = admin_pb2.DeleteRecordsRequest(partitions=records)
            try:
                answer = await leader.call(leader.admin.DeleteRecords, request, self.config.request_timeout_ms)
                for part in answer.partitions:
                    raise_error_of(part)
            except RetriableError:  # another broker may lead by now
                for item in partitions:
                    self._cluster.outdated(item.topic)
                raise
            return {TopicPartition(part.topic, part.partition): part.log_start_offset for part in answer.partitions}

        async def attempt() -> dict[TopicPartition, int]:
            groups = await self._cluster.by_leader(before, self.config.default_api_timeout_ms)
            answers = await asyncio.gather(*(delete(leader, items) for leader, items in groups.items()))
            return {partition: start for answer in answers for partition, start in answer.items()}

        return await retrying(
            attempt,
            final=UnknownTopicOrPartition,
            timeout_ms=self.config.default_api_timeout_ms,
            backoff=self._cluster.backoff,
            clock=self._cluster.clock,
        )

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, ListedOffset]:
        """Return offsets by position ("earliest", "latest", "max_timestamp") or timestamp (ms since the epoch).

        With "read_committed", "latest" is the last stable offset, and a timestamp finds records below it.
        """
        return await list_offsets(self._cluster, wanted, self.config.default_api_timeout_ms, isolation_level)

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, controller and brokers."""
        answer = await self._ask("DescribeCluster", admin_pb2.DescribeClusterRequest())
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            brokers=tuple(
                BrokerDescription(
                    id=broker.id, grpc_address=broker.grpc_address, rack=broker.rack, version=broker.version
                )
                for broker in answer.brokers
            ),
            cordoned=tuple(answer.cordoned),
        )

    async def describe_log_dirs(self, topics: Iterable[str] = ()) -> dict[int, list[LogDirDescription]]:
        """Return each broker's log directories with their partitions (of `topics`, or all), by broker id."""
        request = admin_pb2.DescribeLogDirsRequest(topics=list(topics))

        async def describe(connection: Connection) -> list[LogDirDescription]:
            answer = await connection.call(connection.admin.DescribeLogDirs, request, self.config.request_timeout_ms)
            return [to_log_dir(item) for item in answer.log_dirs]

        async def attempt() -> dict[int, list[LogDirDescription]]:
            brokers = await self._cluster.brokers()
            answers = await asyncio.gather(*map(describe, brokers.values()))
            return dict(zip(brokers, answers, strict=True))

        return await retrying(
            attempt,
            timeout_ms=self.config.default_api_timeout_ms,
            backoff=self._cluster.backoff,
            clock=self._cluster.clock,
        )

    async def alter_replica_log_dirs(
        self, targets: Mapping[tuple[TopicPartition, int], str]
    ) -> dict[tuple[TopicPartition, int], KafkaError]:
        """Start to move replicas, each named by partition and broker id, to these log directories of their brokers.

        Returns once the moves have begun, with the refused replicas and their errors: LogDirNotFound,
        KafkaStorageError, ReplicaNotAvailable, InvalidReplicaAssignment (a cordoned broker). `describe_log_dirs` shows
        the progress. Raises BrokerNotAvailable if a broker is down.
        """
        requests: dict[int, list[admin_pb2.ReplicaLogDir]] = {}
        for (item, broker), path in targets.items():
            wanted = admin_pb2.ReplicaLogDir(topic=item.topic, partition=item.partition, path=path)
            requests.setdefault(broker, []).append(wanted)

        async def alter(broker: int, connection: Connection) -> dict[tuple[TopicPartition, int], KafkaError]:
            request = admin_pb2.AlterReplicaLogDirsRequest(replicas=requests[broker])
            answer = await connection.call(
                connection.admin.AlterReplicaLogDirs, request, self.config.request_timeout_ms
            )
            return {(item, broker): error for item, error in _errors_by_partition(answer).items()}

        async def attempt() -> dict[tuple[TopicPartition, int], KafkaError]:
            brokers = await self._cluster.brokers()
            if down := requests.keys() - brokers.keys():
                raise BrokerNotAvailable(f"brokers {sorted(down)} are not up")
            answers = await asyncio.gather(*(alter(broker, brokers[broker]) for broker in requests))
            return {item: error for answer in answers for item, error in answer.items()}

        return await retrying(
            attempt,
            timeout_ms=self.config.default_api_timeout_ms,
            backoff=self._cluster.backoff,
            clock=self._cluster.clock,
        )

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError]:
        """Start to move partitions to these brokers, in order of preference; None cancels a move.

        Returns once the moves are under way, with the refused partitions and their errors: InvalidReplicaAssignment,
        NoReassignmentInProgress (no move to cancel), UnknownTopicOrPartition.
        """
        partitions = [
            admin_pb2.PartitionTarget(topic=item.topic, partition=item.partition, replicas=target or ())
            for item, target in targets.items()
        ]
        request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=partitions)
        return _errors_by_partition(await self._ask("AlterPartitionReassignments", request))

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] = ()
    ) -> dict[TopicPartition, Reassignment]:
        """Return the partitions, of these or of all, that are moving to other brokers."""
        request = admin_pb2.ListPartitionReassignmentsRequest(partitions=_partition_ids(partitions))
        answer = await self._ask("ListPartitionReassignments", request)
        return {TopicPartition(part.topic, part.partition): to_reassignment(part) for part in answer.partitions}

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect the first replica of each partition (None: of all) as leader; return each partition's error or None.

        With `unclean`, any live replica becomes the leader of a partition without one; records that it has not copied
        are lost. A partition that needs no election has ElectionNotNeeded if it was named, else it is left out.
        """
        request = admin_pb2.ElectLeadersRequest(
            type=admin_pb2.UNCLEAN if unclean else admin_pb2.PREFERRED,
            partitions=_partition_ids(partitions or ()),
            all_partitions=partitions is None,
        )
        answer = await self._ask("ElectLeaders", request)
        return {TopicPartition(part.topic, part.partition): read_error(part) for part in answer.partitions}

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """Return every group, or those in some states (Stable, Empty, …) or of some types (classic, consumer)."""
        return await self._groups.list_groups(states, types)

    async def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """Return groups with the topics and the assignment of each member; raises GroupIdNotFound."""
        return await self._groups.describe_groups(group_ids)

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups with their committed offsets; raises NonEmptyGroup for one with members, GroupIdNotFound."""
        await self._groups.delete_groups(group_ids)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """Return the group's committed offset and lag in these partitions, or in all where it has committed."""
        return await self._groups.list_group_offsets(group_id, partitions)

    async def alter_group_offsets(self, group_id: str, offsets: Offsets) -> None:
        """Set the group's committed offsets; creates the group if it does not exist.

        Raises UnknownMemberId if the group has members: they would not notice the change.
        """
        await self._groups.alter_group_offsets(group_id, offsets)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the group's committed offsets; raises GroupSubscribedToTopic if a member reads the topic."""
        await self._groups.delete_group_offsets(group_id, partitions)

    async def describe_acls(self, filter: AclBindingFilter = EVERY_ACL) -> list[AclBinding]:
        """Return the ACLs that the filter selects, sorted by resource.

        Raises SecurityDisabled if the brokers have no authorizer, ClusterAuthorizationFailed without DESCRIBE on the
        cluster.
        """
        request = admin_pb2.DescribeAclsRequest(filter=to_message(filter, admin_pb2.AclBindingFilter))
        answer = await self._cluster.ask_admin("DescribeAcls", request)
        return [to_value(acl, AclBinding) for acl in answer.acls]

    async def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Create ACLs; those that exist already stay. Brokers apply them a moment later.

        Raises InvalidRequest for the first invalid ACL, after the others were created; SecurityDisabled if the brokers
        have no authorizer; ClusterAuthorizationFailed without ALTER on the cluster.
        """
        request = admin_pb2.CreateAclsRequest(acls=[to_message(acl, admin_pb2.AclBinding) for acl in acls])
        for result in (await self._cluster.ask_admin("CreateAcls", request)).acls:
            raise_error_of(result)

    async def delete_acls(self, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
        """Delete the ACLs that filters select, and return them. Raises as `create_acls` does."""
        messages = [to_message(each, admin_pb2.AclBindingFilter) for each in filters]
        answer = await self._cluster.ask_admin("DeleteAcls", admin_pb2.DeleteAclsRequest(filters=messages))
        for result in answer.filters:
            raise_error_of(result)
        return sorted({to_value(acl, AclBinding) for result in answer.filters for acl in result.acls})

    async def describe_client_quotas(
        self, filters: Iterable[QuotaFilter] = (), *, strict: bool = False
    ) -> list[ClientQuota]:
        """Return the quotas of entities that all filters select, sorted by entity; without filters, all of them.

        strict: only entities without a part of any other type

        Raises InvalidRequest for filters that no entity can match, ClusterAuthorizationFailed without DESCRIBE_CONFIGS
        on the cluster.
        """
        messages = [to_message(each, admin_pb2.QuotaFilter) for each in filters]
        request = admin_pb2.DescribeClientQuotasRequest(filters=messages, strict=strict)
        answer = await self._cluster.ask_admin("DescribeClientQuotas", request)
        return [to_value(quota, ClientQuota) for quota in answer.quotas]

    async def alter_client_quotas(self, changes: Iterable[QuotaChange], *, validate_only: bool = False) -> None:
        """Set and remove quotas. Brokers apply them a moment later.

        Raises InvalidRequest for the first invalid change, after the others were made; ClusterAuthorizationFailed
        without ALTER_CONFIGS on the cluster.
        """
        messages = [to_message(each, admin_pb2.QuotaChange) for each in changes]
        request = admin_pb2.AlterClientQuotasRequest(changes=messages, validate_only=validate_only)
        for result in (await self._cluster.ask_admin("AlterClientQuotas", request)).changes:
            raise_error_of(result)

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int | None = None,
        id_pattern: str = "",
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers, sorted, or those that match each filter.

        states: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit or CompleteAbort
        duration_ms: only ids whose transaction began longer ago than this
        id_pattern: a regular expression for the whole id

        Raises InvalidRequest for a state that does not exist, InvalidRegularExpression for a wrong pattern.
        """
        return await self._transactions.list_transactions(states, producer_ids, duration_ms, id_pattern)

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        """Return transactional ids with the partitions of their open transactions; raises TransactionalIdNotFound."""
        return await self._transactions.describe_transactions(transactional_ids)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[ProducerDescription, ...]]:
        """Return the producers that the leaders of partitions remember; raises UnknownTopicOrPartition."""
        return await self._transactions.describe_producers(partitions)

    async def find_hanging_transactions(
        self,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        broker: int | None = None,
        max_timeout_ms: int = MAX_TIMEOUT_MS,
        progress: Progress | None = None,
    ) -> HangingTransactions:
        """Return the transactions that are open in a partition and that no coordinator will end.

        topics, partitions: where to search; None: all topics, with the internal ones
        broker: only partitions that this broker leads
        max_timeout_ms: only transactions whose producer has written nothing for longer. Use at least the longest
            transaction timeout of any producer: a younger transaction may not have reached its coordinator.
        progress: called in the event loop's thread, each time with the number of further partitions searched

        Raises UnknownTopicOrPartition, or BrokerNotAvailable for a broker that the cluster does not have.
        """
        if topics is None and partitions is None:
            leaders = await leaders_of(None, (), self._describe)
        else:
            leaders = await leaders_of(partitions, topics or (), self.describe_topics)
        if broker is not None:
            await self._cluster.broker(broker)
            leaders = {item: leader for item, leader in leaders.items() if leader == broker}
        return await search(self._transactions, self._cluster.clock, leaders, max_timeout_ms, progress)

    async def abort_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Abort a hanging transaction in one partition; `describe_producers` shows the values of the arguments.

        Readers of committed records never see its records there. If the producer still runs, its transaction is torn:
        other partitions may commit it. Raises TransactionCoordinatorFenced or InvalidProducerEpoch if a newer
        coordinator or producer has written meanwhile.
        """
        await self._transactions.abort_transaction(partition, producer_id, producer_epoch, coordinator_epoch)

    async def close(self) -> None:
        """Close the connections."""
        await self._cluster.close()

    async def _describe(self, names: Iterable[str], *, include_unsure: bool = False) -> list[TopicDescription]:
        """Describe these topics; without names, all topics, internal ones included."""
        request = admin_pb2.DescribeTopicsRequest(names=names, include_unsure=include_unsure)
        answer = await self._ask("DescribeTopics", request)
        return await ask_leaders(self._cluster, [to_topic(topic) for topic in answer.topics])

    async def _ask(self, method: str, request: Any) -> Any:
        """Return the answer of any broker. Raises the first error of a topic or resource in it."""
        answer = await self._cluster.ask_admin(method, request)
        for result in (*getattr(answer, "topics", ()), *getattr(answer, "resources", ())):
            if hasattr(result, "error"):
                raise_error_of(result)
        return answer


def _partition_ids(partitions: Iterable[TopicPartition]) -> list[admin_pb2.PartitionId]:
    return [admin_pb2.PartitionId(topic=item.topic, partition=item.partition) for item in partitions]


def _errors_by_partition(answer: Any) -> dict[TopicPartition, KafkaError]:
    errors = {TopicPartition(part.topic, part.partition): read_error(part) for part in answer.partitions}
    return {item: error for item, error in errors.items() if error}


def _resource(topic: str | None, broker: int | None) -> admin_pb2.ConfigResource:
    if (topic is None) == (broker is None):
        raise ConfigError("describe_configs takes a topic or a broker, one of the two")
    if topic is not None:
        return admin_pb2.ConfigResource(type=admin_pb2.TOPIC, name=topic)
    return admin_pb2.ConfigResource(type=admin_pb2.BROKER, name=str(broker))
