"""FindCoordinator: find the brokers that coordinate groups and transactions (key 10).

- The coordinator is the leader of a partition of __consumer_offsets or __transaction_state. The topic is created on the
  first request. COORDINATOR_NOT_AVAILABLE if that fails or the partition has no leader: clients retry.
- Share groups get INVALID_REQUEST; Kafka answers COORDINATOR_NOT_AVAILABLE if a coordinator will exist soon, but here
  clients would retry until they time out.
- Versions 0 to 6, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from sparklog.base.acls import AclOperation, AclResourceType
from sparklog.base.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import Either, OnEach, itself
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.group.coordinator import GroupCoordinator
from sparklog.security.authorizer import Authorizer
from sparklog.transaction.coordinator import TransactionCoordinator

GROUP, TRANSACTION = 0, 1
Coordinator: TypeAlias = GroupCoordinator | TransactionCoordinator


class FindCoordinatorRequest(Struct, frozen=True, kw_only=True):
    keys: Sequence[str]
    """Ids of groups, or transactional ids."""
    key_type: int = GROUP


class FoundCoordinator(Struct, frozen=True, kw_only=True):
    key: str
    error: KafkaError | None = None
    broker: BrokerInfo | None = None


class FindCoordinatorResponse(Struct, frozen=True, kw_only=True):
    coordinators: Sequence[FoundCoordinator]


async def handle(
    request: FindCoordinatorRequest,
    *,
    groups: GroupCoordinator,
    metadata: MetadataCache,
    transactions: TransactionCoordinator,
) -> FindCoordinatorResponse:
    """Return the coordinator, or an error, of each key, in their order."""
    coordinators: dict[int, Coordinator] = {GROUP: groups, TRANSACTION: transactions}
    coordinator = coordinators.get(request.key_type)
    return FindCoordinatorResponse(
        coordinators=[await _find(coordinator, metadata, request.key_type, key) for key in request.keys]
    )


async def _find(coordinator: Coordinator | None, metadata: MetadataCache, key_type: int, key: str) -> FoundCoordinator:
    if coordinator is None:
        error = InvalidRequest(f"key type {key_type}: only groups and transactions have coordinators")
        return FoundCoordinator(key=key, error=error)
    try:
        return FoundCoordinator(key=key, broker=await _leader(coordinator, metadata, key))
    except KafkaError as error:
        return FoundCoordinator(key=key, error=error)


async def _leader(coordinator: Coordinator, metadata: MetadataCache, key: str) -> BrokerInfo:
    """Return the id's coordinator. Raises CoordinatorNotAvailable, or what makes the id invalid."""
    await coordinator.partitions.ensure_topic()
    name = TopicPartition(coordinator.partitions.topic, coordinator.partition_for(key))
    leader = metadata.leader_of(name)
    if leader is None:
        raise CoordinatorNotAvailable(f"{name} has no leader at the moment")
    return leader


def _refused(key: str, error: KafkaError) -> FoundCoordinator:
    return FoundCoordinator(key=key, error=error)


def _generation(*, authorizer: Authorizer, metadata: MetadataCache) -> int:
    return authorizer.version + metadata.generation


API = Api(
    name="FindCoordinator",
    handle=handle,
    rights=(
        Either(
            lambda request: request.key_type == GROUP,
            OnEach(AclOperation.DESCRIBE, AclResourceType.GROUP, "keys", itself, _refused, "coordinators"),
            OnEach(AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, "keys", itself, _refused, "coordinators"),
        ),
    ),
    key=10,
    versions=(0, 6),
    cached_by=_generation,
)
