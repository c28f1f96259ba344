"""UploadSegment: the bytes of a new segment, in pieces, each a sign of life of its lease.

- RESOURCE_NOT_FOUND where the lease has ended, also while the bytes come; it ends when nothing comes for its time.
- A new upload under the same lease takes the place of what was uploaded before.
- RECORD_LIST_TOO_LARGE beyond twice the size of the sources and a megabyte; the lease has ended then.
- KAFKA_STORAGE_ERROR where there is no room; nothing else is harmed.
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
