"""InitProducerId: an id under which a producer numbers its batches, so that none is written twice (KIP-98).

- Without a transactional id every request is given a new id, with epoch 0, as in Apache Kafka: an id and epoch that the
  producer had (KIP-360) are accepted and not looked at, as an idempotent producer bumps its epoch by itself.
- Ids are never given twice (cluster/producer_ids.py). While the store cannot be reached: COORDINATOR_LOAD_IN_PROGRESS,
  which clients try again.
- There are no transactions. A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one answer
  that Java's client and librdkafka both take as final and report at once; others are tried again for minutes, or
  reported as an unexpected error. An empty transactional id is an INVALID_REQUEST, as in Apache Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.base.errors import InvalidRequest, TransactionalIdAuthorizationFailed
from sparklog.broker.api import Api
from sparklog.cluster.producer_ids import ProducerIds

NO_PRODUCER_ID, NO_EPOCH = -1, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    """`producer_id` and `producer_epoch` are what the producer has had; -1: nothing."""

    transactional_id: str | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse:
    producer_id: int
    producer_epoch: int


async def handle(request: InitProducerIdRequest, *, producer_ids: ProducerIds) -> InitProducerIdResponse:
    """Raises InvalidRequest, TransactionalIdAuthorizationFailed or CoordinatorLoadInProgress."""
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
