"""FindCoordinator: which broker coordinates groups (key 10).

- The coordinator of a group is who leads its partition of __consumer_offsets; the topic is created when the first
  group is asked for. COORDINATOR_NOT_AVAILABLE while that cannot be done, or nobody leads: clients ask again.
- There are no coordinators of other things. Share groups are refused with INVALID_REQUEST and not, as Kafka does for
  what will be there soon, with COORDINATOR_NOT_AVAILABLE: clients would ask again until they time out. Transactions are
  refused as InitProducerId refuses them, with TRANSACTIONAL_ID_AUTHORIZATION_FAILED: librdkafka asks again after
  anything else.
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
    """Raises CoordinatorNotAvailable."""
    await groups.ensure_topic()
    name = TopicPartition(OFFSETS_TOPIC, groups.partition_for(group_id))
    leader = metadata.leader_of(name)
    if leader is None:
        raise CoordinatorNotAvailable(f"{name} has no leader at the moment")
    return leader


API = Api(name="FindCoordinator", handle=handle, key=10, versions=(0, 6))
