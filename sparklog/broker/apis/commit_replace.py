"""CommitReplace: verify a staged segment and put it in place of its sources.

- Fenced again by the leader epoch and by the identity of the sources, as BeginReplace.
- CORRUPT_MESSAGE if the file does not have the given size and CRC-32C, or has bytes that are no batch; INVALID_RECORD
  if its batches must not replace the sources (`log/swap.py`).
- RESOURCE_NOT_FOUND if the lease has ended. A refusal ends the lease and removes what was staged.
- A commit is final: the same request gets the same answer for ten minutes.
- A commit runs to its end even if the client disconnects.
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
