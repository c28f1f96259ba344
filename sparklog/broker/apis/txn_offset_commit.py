"""TxnOffsetCommit: commit the offsets of a group in a transaction (key 28, versions 0 to 5; KIP-98, KIP-447).

- The offsets are pending until the transaction's marker is written into the group's partition of `__consumer_offsets`.
- Clients of protocol 1 enrol that partition first (AddOffsetsToTxn); from version 5 on, this request does it (KIP-890).
  In both cases the coordinator of the transaction is asked before the first offsets of a transaction are written.
- A broker that does not coordinate the group answers NOT_COORDINATOR, as for any request to it.
- A missing partition is refused (UNKNOWN_TOPIC_OR_PARTITION), and never reaches the coordinator.
"""

from __future__ import annotations

from msgspec import structs

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import OFFSETS, on_group, on_transactional_id
from sparklog.broker.verification import FirstBatch, TransactionVerifier
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.coordinator.runtime import answer_for
from sparklog.group.coordinator import OFFSETS_TOPIC, GroupCoordinator
from sparklog.group.requests import OffsetCommitResponse, TxnOffsetCommit
from sparklog.runtime.state_machine import ProducerIdAndEpoch


async def handle(
    request: TxnOffsetCommit, *, groups: GroupCoordinator, metadata: MetadataCache, verifier: TransactionVerifier
) -> OffsetCommitResponse:
    """Return an error, or None, for each partition."""
    known = [each for each in request.offsets if metadata.has(each.partition)]
    errors: dict[TopicPartition, KafkaError | None] = {
        each.partition: UnknownTopicOrPartition(f"partition {each.partition} does not exist")
        for each in request.offsets
        if not metadata.has(each.partition)
    }
    if known or not request.offsets:
        wanted = structs.replace(request, offsets=known)
        name = TopicPartition(OFFSETS_TOPIC, groups.partition_for(request.group_id))
        batch = FirstBatch(ProducerIdAndEpoch(request.producer_id, request.producer_epoch))
        verified = (await verifier.verify(request.transactional_id, {name: batch}, request.protocol))[name]
        if isinstance(verified, KafkaError):
            errors |= wanted.refused(answer_for(verified)).errors
        else:
            errors |= (await groups.commit_in_transaction(wanted, verified)).errors
    return OffsetCommitResponse(errors=errors)


API = Api(
    name="TxnOffsetCommit",
    handle=handle,
    rights=(
        on_transactional_id(AclOperation.WRITE),
        on_group(AclOperation.READ),
        OFFSETS,
    ),
    key=28,
    versions=(0, 5),
)
