"""FindCoordinator: find the brokers that coordinate groups (key 10).

- A group's coordinator is the leader of its partition of __consumer_offsets. The topic is created on the first request
  for a group. COORDINATOR_NOT_AVAILABLE if that fails or the partition has no leader: clients retry.
- Only groups have coordinators. Share groups get INVALID_REQUEST; Kafka answers COORDINATOR_NOT_AVAILABLE if a
  coordinator will exist soon, but here clients would retry until they time out. Transactions get
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as in InitProducerId: librdkafka retries after any other error.
- Versions 0 to 6, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.errors import CoordinatorNotAvailable, InvalidRequest, KafkaError, TransactionalIdAuthorizationFailed
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.group.coordinator import OFFSETS_TOPIC, GroupCoordinator

GROUP, TRANSACTION = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorRequest:
    keys: Sequence[str]
    """Group ids."""
    key_type: int = GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCoordinator:
    key: str
    error: KafkaError | None = None
    broker: BrokerInfo | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorResponse:
    coordinators: Sequence[FoundCoordinator]


async def handle(
    request: FindCoordinatorRequest, *, groups: GroupCoordinator, metadata: MetadataCache
) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[await _find(groups, metadata, request.key_type, key) for key in request.keys]
    )


async def _find(groups: GroupCoordinator, metadata: MetadataCache, key_type: int, key: str) -> FoundCoordinator:
    if key_type == TRANSACTION:
        return FoundCoordinator(key=key, error=TransactionalIdAuthorizationFailed("transactions are not supported"))
    if key_type != GROUP:
        return FoundCoordinator(key=key, error=InvalidRequest(f"key type {key_type}: only groups have coordinators"))
    try:
        return FoundCoordinator(key=key, broker=await _leader(groups, metadata, key))
    except KafkaError as error:
        return FoundCoordinator(key=key, error=error)


async def _leader(groups: GroupCoordinator, metadata: MetadataCache, group_id: str) -> BrokerInfo:
    """Return the group's coordinator. Raises CoordinatorNotAvailable."""
    await groups.partitions.ensure_topic()
    name = TopicPartition(OFFSETS_TOPIC, groups.partition_for(group_id))
    leader = metadata.leader_of(name)
    if leader is None:
        raise CoordinatorNotAvailable(f"{name} has no leader at the moment")
    return leader


API = Api(name="FindCoordinator", handle=handle, key=10, versions=(0, 6))
