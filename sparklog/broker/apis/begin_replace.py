"""BeginReplace: take the lease for putting one segment in place of neighbouring closed ones.

- By the leader, in the epoch that it has: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH. Followers
  take over from it what was replaced.
- INVALID_UPDATE_VERSION where a source is not what it was, where they are no neighbours, or not all closed and below
  the high watermark.
- DUPLICATE_RESOURCE while another holder has the partition's lease. The same holder takes its own over: the old lease,
  and what was staged under it, are gone.
- INVALID_REQUEST without sources or a holder, or where a lease would live for more than an hour.
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
    """How long the lease lives without a sign of life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginReplaceResponse:
    lease_id: str
    path: str
    """Where the new segment may be written by whoever shares the disk; absolute."""


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
