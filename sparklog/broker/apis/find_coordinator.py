"""FindCoordinator: which broker coordinates groups (key 10).

- The cluster is this one broker, so it is the one.
- There are no coordinators of other things. Share groups are refused with INVALID_REQUEST and not, as Kafka does for
  what will be there soon, with COORDINATOR_NOT_AVAILABLE: clients would ask again until they time out. Transactions are
  refused as InitProducerId refuses them, with TRANSACTIONAL_ID_AUTHORIZATION_FAILED: librdkafka asks again after
  anything else.
- Versions 0 to 6, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.errors import InvalidRequest, KafkaError, TransactionalIdAuthorizationFailed
from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.cluster.model import BrokerInfo

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


async def handle(services: Services, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[_find(services, request.key_type, key) for key in request.keys])


def _find(services: Services, key_type: int, key: str) -> FoundCoordinator:
    if key_type == TRANSACTION:
        return FoundCoordinator(key=key, error=TransactionalIdAuthorizationFailed("transactions are not supported"))
    if key_type != GROUP:
        return FoundCoordinator(key=key, error=InvalidRequest(f"key type {key_type}: only groups have coordinators"))
    return FoundCoordinator(key=key, broker=services.info)


API = Api(name="FindCoordinator", handle=handle, key=10, versions=(0, 6))
