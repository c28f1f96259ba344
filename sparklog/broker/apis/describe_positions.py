"""DescribePositions: return high watermarks, to compute the lag of committed offsets (service Replication).

On each scrape of its metrics, a group coordinator asks the leaders of the partitions for which it is not in sync. A
position is answered without a high watermark if this broker does not lead the partition, or does not know it yet.

Headers of batches are read in a thread, `PART` at a time: the event loop gets its turn in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster
from sparklog.replica import positions
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.messages import DescribedPosition, DescribePositions, DescribePositionsResponse, Position
from sparklog.runtime.slices import Slices, of_many

PART = 100
"""Number of positions that are described in one go: a few milliseconds of work."""
UNKNOWN = DescribedPosition()


async def describe(
    asked: Sequence[Position], replicas: ReplicaManager, slices: Slices, *, leads: bool
) -> list[DescribedPosition]:
    """Return descriptions of the positions, in their order. leads: only of partitions that this broker leads"""

    async def describe_some(some: Sequence[Position]) -> list[DescribedPosition]:
        found = [_find(replicas, position, leads=leads) for position in some]
        return await asyncio.to_thread(partial(_describe, some, found))

    parts = await slices.each(of_many(asked, PART), describe_some)
    return [described for part in parts for described in part]


def _find(replicas: ReplicaManager, position: Position, *, leads: bool) -> Replica | None:
    replica = replicas.find(position.name)
    return None if replica and leads and not replica.partition.is_leader else replica


def _describe(asked: Sequence[Position], found: Sequence[Replica | None]) -> list[DescribedPosition]:
    return [
        _describe_one(position, replica) if replica else UNKNOWN for position, replica in zip(asked, found, strict=True)
    ]


def _describe_one(position: Position, replica: Replica) -> DescribedPosition:
    try:
        return positions.describe(replica, position.offset)
    except KafkaError:  # its disk has failed, or its high watermark is not known yet: other metrics say so
        return UNKNOWN


async def handle(request: DescribePositions, *, replicas: ReplicaManager, slices: Slices) -> DescribePositionsResponse:
    """Return a description of each position, in their order; UNKNOWN where this broker does not lead."""
    return DescribePositionsResponse(positions=tuple(await describe(request.positions, replicas, slices, leads=True)))


API = Api(name="DescribePositions", handle=handle, rights=(on_cluster(AclOperation.CLUSTER_ACTION),))
