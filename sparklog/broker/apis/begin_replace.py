"""BeginReplace: take a lease for replacing neighbouring closed segments by one.

- Only the leader accepts it, in its leader epoch: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
  Followers copy the replacement from the leader.
- INVALID_UPDATE_VERSION if a source has changed, or the sources are not neighbours, not all closed, or not all below
  the high watermark.
- DUPLICATE_RESOURCE while another holder has the partition's lease. A new lease of the same holder replaces its old
  one, and removes what was staged under it.
- INVALID_REQUEST without sources or a holder, or for a lease of more than an hour.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.leases import Lease
from sparklog.broker.replacements import Replacements
from sparklog.log.description import SegmentDescription
from sparklog.log.log import Log

DEFAULT_LEASE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginReplaceRequest:
    partition: TopicPartition
    leader_epoch: int
    sources: Sequence[SegmentDescription]
    """Oldest first."""
    holder: str
    lease_ms: int = DEFAULT_LEASE_MS
    """Time until the lease expires unless it is renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginReplaceResponse:
    lease_id: str
    path: str
    """Absolute path where a client that shares the disk may write the new segment itself."""


async def handle(request: BeginReplaceRequest, *, replacements: Replacements) -> BeginReplaceResponse:
    lease = await replacements.begin(
        request.partition,
        request.leader_epoch,
        request.sources,
        holder=request.holder,
        lease_ms=request.lease_ms,
    )
    return BeginReplaceResponse(lease_id=lease.id, path=_staged_path(lease))


def _staged_path(lease: Lease[Log]) -> str:
    return os.path.abspath(lease.log.staged_path(lease.base_offset))


API = Api(name="BeginReplace", handle=handle)
