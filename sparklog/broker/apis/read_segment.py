"""ReadSegment: read a range of one of a segment's files, in pieces.

- The read covers the file as it was when the request came. A segment that is replaced or deleted meanwhile is read to
  its end; records appended to the active segment meanwhile are left out.
- A request with an identity gets INVALID_UPDATE_VERSION if the segment has another identity by now. A range that a
  truncation cuts meanwhile gets the same error, in the middle of the answer.
- OFFSET_OUT_OF_RANGE if no segment begins at the base offset, INVALID_REQUEST for an invalid range.
- `leader-epoch-checkpoint` belongs to the whole log: the base offset is then ignored.
- Each piece is read in a thread, once the previous one has been consumed: a slow reader holds one piece in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.acls import AclOperation
from sparklog.base.errors import InvalidRequest, InvalidUpdateVersion
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, On
from sparklog.log.files import LEADER_EPOCHS, LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from sparklog.log.slice import LogSlice
from sparklog.replica.manager import ReplicaManager

PIECE_BYTES = 1 << 20
FILES = {
    "": LOG,
    "log": LOG,
    "index": OFFSET_INDEX,
    "timeindex": TIME_INDEX,
    "txnindex": TXN_INDEX,
    LEADER_EPOCHS: LEADER_EPOCHS,
}


class ReadSegmentRequest(Struct, frozen=True, kw_only=True):
    partition: TopicPartition
    base_offset: int
    position: int = 0
    size: int | None = None
    """Bytes to read; None: to the end."""
    identity: str | None = None
    """The segment's expected identity; None: any."""
    file: str = "log"
    """One of `FILES`."""


class ReadSegmentResponse(Struct, frozen=True, kw_only=True):
    pieces: AsyncIterator[bytes]
    """The iterator raises InvalidUpdateVersion or KafkaStorageError."""


async def handle(request: ReadSegmentRequest, *, replicas: ReplicaManager) -> ReadSegmentResponse:
    """Return the bytes in pieces. Raises InvalidRequest, and as `ReplicaManager.get` and `Log.open_file` do."""
    suffix = FILES.get(request.file)
    if suffix is None:
        raise InvalidRequest(f"file {request.file!r}: it is one of log, index, timeindex, txnindex, {LEADER_EPOCHS}")
    if request.position < 0 or (request.size is not None and request.size < 0):
        raise InvalidRequest(f"no range of a file: {request.size} bytes from position {request.position}")
    log = replicas.get(request.partition).log
    whole = await asyncio.to_thread(log.open_file, request.base_offset, suffix, request.identity)
    end = whole.size if request.size is None else min(whole.size, request.position + request.size)
    return ReadSegmentResponse(pieces=_read(whole, request.position, end))


async def _read(whole: LogSlice, position: int, end: int) -> AsyncIterator[bytes]:
    while position < end:
        piece = replace(whole, position=position, size=min(PIECE_BYTES, end - position))
        data = await asyncio.to_thread(piece.read)
        if not data:
            raise InvalidUpdateVersion(f"the file was cut at {position} while it was read up to {end}")
        yield data
        position += len(data)


API = Api(
    name="ReadSegment",
    handle=handle,
    rights=(On(AclOperation.READ, TOPIC, lambda request, access: request.partition.topic),),
)
