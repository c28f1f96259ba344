"""InitProducerId: allocate a producer id, with which a producer's batches are written only once (key 22; KIP-98).

- Without a transactional id, every request gets a new id with epoch 0, as in Apache Kafka. The producer's previous id
  and epoch (KIP-360) are accepted and ignored, as an idempotent producer bumps its epoch itself.
- Ids are never reused (cluster/producer_ids.py). While the store cannot be reached: COORDINATOR_LOAD_IN_PROGRESS, which
  clients retry.
- There are no transactions. A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only error
  that Java's client and librdkafka both treat as fatal and report at once; they retry others for minutes, or report an
  unexpected error. An empty transactional id gets INVALID_REQUEST, as in Apache Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.base.errors import InvalidRequest, TransactionalIdAuthorizationFailed
from sparklog.broker.api import Api
from sparklog.cluster.producer_ids import ProducerIds

NO_PRODUCER_ID, NO_EPOCH = -1, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    """`producer_id` and `producer_epoch` are the producer's previous ones; -1: none."""

    transactional_id: str | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse:
    producer_id: int
    producer_epoch: int


async def handle(request: InitProducerIdRequest, *, producer_ids: ProducerIds) -> InitProducerIdResponse:
    """Allocate an id. Raises InvalidRequest, TransactionalIdAuthorizationFailed or CoordinatorLoadInProgress."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise InvalidRequest(
            f"producer id {request.producer_id} with epoch {request.producer_epoch}: both or none are to be given"
        )
    if request.transactional_id == "":
        raise InvalidRequest("an empty transactional id")
    if request.transactional_id is not None:
        raise TransactionalIdAuthorizationFailed("transactions are not supported: leave transactional.id out")
    return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)


API = Api(name="InitProducerId", handle=handle, key=22, versions=(0, 5))
