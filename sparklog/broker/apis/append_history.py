"""AppendHistory: append a broker's records to the topic `__cluster_history`, at its leader (broker to broker).

- The response comes once all in-sync replicas have the records. NOT_LEADER_OR_FOLLOWER if another broker leads, and the
  other errors of a produce with acks=all.
- The batch has a producer id and sequence numbers: a batch that is resent after a lost answer is written once.
"""

from __future__ import annotations

from sparklog.base.acls import AclOperation
from sparklog.broker.api import Api, Handlers
from sparklog.broker.apis import produce
from sparklog.broker.rights import on_cluster
from sparklog.cluster.history import HISTORY, AppendHistory, AppendHistoryResponse


async def handle(request: AppendHistory, *, handlers: Handlers) -> AppendHistoryResponse:
    """Append to the history; return the offset of the first record. Raises the error of its partition."""
    part = produce.PartitionProduce(topic=HISTORY.topic, partition=HISTORY.partition, data=bytearray(request.records))
    appended = await handlers[produce.API](
        produce.ProduceRequest(
            acks=produce.ACKS_ALL,
            timeout_ms=request.timeout_ms,
            partitions=[part],
            creates_topics=False,
            writes_internal_topics=True,
        )
    )
    [result] = appended.partitions
    if result.error:
        raise result.error
    return AppendHistoryResponse(base_offset=result.base_offset)


API = Api(name="AppendHistory", handle=handle, rights=(on_cluster(AclOperation.CLUSTER_ACTION),))
