"""SetCleanedOffset: record in the cleaner checkpoint that all records below an offset have been compacted.

- Only the leader accepts it; its followers copy the offset. Fenced by the leader epoch, and by the segments below the
  offset: INVALID_UPDATE_VERSION if one of them has changed.
- The checkpoint is on disk before the answer. A truncation lowers the offset again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster
from sparklog.log.description import SegmentDescription
from sparklog.replica.manager import ReplicaManager


class SetCleanedOffsetRequest(Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    leader_epoch: int
    offset: int
    segments: Sequence[SegmentDescription]
    """The segments below the offset."""


class SetCleanedOffsetResponse(Struct, frozen=True, kw_only=True):
    pass


async def handle(request: SetCleanedOffsetRequest, *, replicas: ReplicaManager) -> SetCleanedOffsetResponse:
    """Record the offset; the answer is empty.

    Raises as `ReplicaManager.get_leader` and `Partition.check_leader_epoch` do, and InvalidUpdateVersion.
    """
    replica = replicas.get_leader(request.partition)
    replica.partition.check_leader_epoch(request.leader_epoch)
    await asyncio.to_thread(replica.log.replacer.set_cleaned_offset, request.offset, request.segments)
    return SetCleanedOffsetResponse()


API = Api(name="SetCleanedOffset", handle=handle, rights=(on_cluster(AclOperation.CLUSTER_ACTION),))
