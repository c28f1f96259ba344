"""CommitReplace: verify a staged segment and put it in place of its sources.

- Fenced again by the leader epoch and by the identity of the sources, as BeginReplace.
- CORRUPT_MESSAGE where the file is not of the size and CRC-32C that are given, or holds bytes that are no batch;
  INVALID_RECORD where its batches may not take the sources' place (`log/swap.py`).
- RESOURCE_NOT_FOUND where the lease has ended. Every refusal ends it, and removes what was staged.
- Once it is done it stays done: asked again within ten minutes, it answers the same.
- Whoever asks and goes away does not stop it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.broker.api import Api
from sparklog.broker.replacements import Replacements, Staged
from sparklog.log.description import SegmentDescription


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReplaceRequest:
    lease_id: str
    leader_epoch: int
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReplaceResponse:
    segment: SegmentDescription


async def handle(request: CommitReplaceRequest, *, replacements: Replacements) -> CommitReplaceResponse:
    staged = Staged(size_bytes=request.size_bytes, crc32c=request.crc32c)
    segment = await replacements.commit(request.lease_id, request.leader_epoch, staged)
    return CommitReplaceResponse(segment=segment)


API = Api(name="CommitReplace", handle=handle)
