"""UploadSegment: upload a new segment in pieces; each piece renews the lease.

- RESOURCE_NOT_FOUND if the lease has ended, or ends during the upload. It ends if no piece comes for its duration.
- A new upload under the same lease replaces the previous one.
- RECORD_LIST_TOO_LARGE above twice the size of the sources plus 1 MiB; this ends the lease.
- KAFKA_STORAGE_ERROR if the disk is full; nothing else is affected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from sparklog.broker.api import Api
from sparklog.broker.replacements import Replacements


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadSegmentRequest:
    lease_id: str
    pieces: AsyncIterator[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadSegmentResponse:
    size_bytes: int


async def handle(request: UploadSegmentRequest, *, replacements: Replacements) -> UploadSegmentResponse:
    return UploadSegmentResponse(size_bytes=await replacements.upload(request.lease_id, request.pieces))


API = Api(name="UploadSegment", handle=handle)
