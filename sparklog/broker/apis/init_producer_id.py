"""InitProducerId: allocate a producer id, with which a producer's batches are written only once (key 22; KIP-98).

- Without a transactional id, every request gets a new id with epoch 0, as in Apache Kafka. The producer's previous id
  and epoch (KIP-360) are accepted and ignored, as an idempotent producer bumps its epoch itself.
- With a transactional id, its coordinator answers: the id of the producer with a higher epoch, once no transaction of
  an earlier one is open (transaction/).
- Ids are never reused (cluster/producer_ids.py). While the store cannot be reached: COORDINATOR_LOAD_IN_PROGRESS, which
  clients retry.
- An empty transactional id gets INVALID_REQUEST, as in Apache Kafka.
"""

from __future__ import annotations

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import InvalidRequest
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, Either, OnAny, OneOf, on_cluster, on_transactional_id
from sparklog.cluster.producer_ids import ProducerIds
from sparklog.transaction.coordinator import TransactionCoordinator
from sparklog.transaction.requests import InitProducerId

NO_PRODUCER_ID, NO_EPOCH = -1, -1
DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000


class InitProducerIdRequest(Struct, frozen=True, kw_only=True):
    """`producer_id` and `producer_epoch` are the producer's previous ones; -1: none."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class InitProducerIdResponse(Struct, frozen=True, kw_only=True):
    producer_id: int
    producer_epoch: int


async def handle(
    request: InitProducerIdRequest, *, producer_ids: ProducerIds, transactions: TransactionCoordinator
) -> InitProducerIdResponse:
    """Return a new producer id with epoch 0 or, for a transactional id, what its coordinator answers.

    Raises InvalidRequest, CoordinatorLoadInProgress, or an error of the transaction coordinator.
    """
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise InvalidRequest(
            f"producer id {request.producer_id} with epoch {request.producer_epoch}: both or none are to be given"
        )
    if request.transactional_id == "":
        raise InvalidRequest("an empty transactional id")
    if request.transactional_id is not None:
        found = await transactions.init_producer_id(
            InitProducerId(
                transactional_id=request.transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
            )
        )
        if found.error is not None:
            raise found.error
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.producer_epoch)
    return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)


API = Api(
    name="InitProducerId",
    handle=handle,
    rights=(
        Either(
            lambda request: request.transactional_id is not None,
            on_transactional_id(AclOperation.WRITE),
            OneOf(
                (on_cluster(AclOperation.IDEMPOTENT_WRITE),),
                OnAny(AclOperation.WRITE, TOPIC, on_cluster(AclOperation.IDEMPOTENT_WRITE)),
            ),
        ),
    ),
    key=22,
    versions=(0, 5),
)
