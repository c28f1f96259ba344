"""The APIs with which a job replaces neighbouring closed segments by one, under a lease of their partition.

    BeginReplace ─▶ UploadSegment, or the client writes the staged file itself ─▶ CommitReplace | AbortReplace

BeginReplace:

- Only the leader accepts it, in its leader epoch: NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
  Followers copy the replacement from the leader.
- INVALID_UPDATE_VERSION if a source has changed, or the sources are not neighbours, not all closed, or not all below
  the high watermark.
- DUPLICATE_RESOURCE while another holder has the partition's lease. A new lease of the same holder replaces its old
  one, and removes what was staged under it.
- INVALID_REQUEST without sources or a holder, or for a lease of more than an hour.

UploadSegment:

- Each piece renews the lease. RESOURCE_NOT_FOUND if the lease has ended, or ends during the upload. It ends if no piece
  comes for its duration.
- A new upload under the same lease replaces the previous one.
- RECORD_LIST_TOO_LARGE above twice the size of the sources plus 1 MiB; this ends the lease.
- KAFKA_STORAGE_ERROR if the disk is full; nothing else is affected.

CommitReplace:

- Fenced again by the leader epoch and by the identity of the sources, as BeginReplace.
- CORRUPT_MESSAGE if the file does not have the given size and CRC-32C, or has bytes that are no batch; INVALID_RECORD
  if its batches must not replace the sources (`log/replacement/swap.py`).
- RESOURCE_NOT_FOUND if the lease has ended. A refusal ends the lease and removes what was staged.
- A commit is final: the same request gets the same answer for ten minutes.
- A commit runs to its end even if the client disconnects.

AbortReplace: a lease that does not exist is no error. A commit under way finishes first, and stays.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.leases import Lease
from sparklog.broker.replacements import Replacements, StagedChecksum
from sparklog.broker.rights import on_cluster
from sparklog.log.description import SegmentDescription
from sparklog.log.log import Log

DEFAULT_LEASE_MS = 60_000


class BeginReplaceRequest(Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    leader_epoch: int
    sources: Sequence[SegmentDescription]
    """Oldest first."""
    holder: str
    lease_ms: int = DEFAULT_LEASE_MS
    """Time until the lease expires unless it is renewed."""


class BeginReplaceResponse(Struct, frozen=True, kw_only=True):
    lease_id: str
    path: str
    """Absolute path where a client that shares the disk may write the new segment itself."""


class UploadSegmentRequest(Struct, frozen=True, kw_only=True):
    lease_id: str
    pieces: AsyncIterator[bytes]


class UploadSegmentResponse(Struct, frozen=True, kw_only=True):
    size_bytes: int


class CommitReplaceRequest(Struct, frozen=True, kw_only=True):
    lease_id: str
    leader_epoch: int
    size_bytes: int
    crc32c: int


class CommitReplaceResponse(Struct, frozen=True, kw_only=True):
    segment: SegmentDescription


class AbortReplaceRequest(Struct, frozen=True, kw_only=True):
    lease_id: str


class AbortReplaceResponse(Struct, frozen=True, kw_only=True):
    pass


async def begin(request: BeginReplaceRequest, *, replacements: Replacements) -> BeginReplaceResponse:
    """Return the lease and the path of the staged file, for a client that shares the disk. Raises the errors above."""
    lease = await replacements.begin(
        request.partition,
        request.leader_epoch,
        request.sources,
        holder=request.holder,
        lease_ms=request.lease_ms,
    )
    return BeginReplaceResponse(lease_id=lease.id, path=_staged_path(lease))


def _staged_path(lease: Lease[Log]) -> str:
    return os.path.abspath(lease.log.replacer.staged_path(lease.base_offset))


async def upload(request: UploadSegmentRequest, *, replacements: Replacements) -> UploadSegmentResponse:
    """Return the bytes that were staged, once the last piece has come. Raises the errors above."""
    return UploadSegmentResponse(size_bytes=await replacements.upload(request.lease_id, request.pieces))


async def commit(request: CommitReplaceRequest, *, replacements: Replacements) -> CommitReplaceResponse:
    """Return the segment that has replaced the sources. Raises the errors above."""
    staged = StagedChecksum(size_bytes=request.size_bytes, crc32c=request.crc32c)
    segment = await replacements.commit(request.lease_id, request.leader_epoch, staged)
    return CommitReplaceResponse(segment=segment)


async def abort(request: AbortReplaceRequest, *, replacements: Replacements) -> AbortReplaceResponse:
    """End the lease; the answer is empty and comes once the staged file is removed."""
    await replacements.abort(request.lease_id)
    return AbortReplaceResponse()


BEGIN_REPLACE = Api(
    name="BeginReplace",
    summary="take a lease for replacing neighbouring closed segments by one",
    handle=begin,
    rights=(on_cluster(AclOperation.CLUSTER_ACTION),),
)
UPLOAD_SEGMENT = Api(
    name="UploadSegment",
    summary="upload a new segment in pieces; each piece renews the lease",
    handle=upload,
    rights=(on_cluster(AclOperation.CLUSTER_ACTION),),
)
COMMIT_REPLACE = Api(
    name="CommitReplace",
    summary="verify a staged segment and put it in place of its sources",
    handle=commit,
    rights=(on_cluster(AclOperation.CLUSTER_ACTION),),
)
ABORT_REPLACE = Api(
    name="AbortReplace",
    summary="end a lease and remove what was staged under it; no error if the lease does not exist",
    handle=abort,
    rights=(on_cluster(AclOperation.CLUSTER_ACTION),),
)
