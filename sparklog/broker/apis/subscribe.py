"""Subscribe: fetch continuously from the given offsets, each response continuing where the previous one ended.

It is a stream of fetch responses, not a request with one response, so it is not in the table of APIs. A listener gets
the stream from the handler.

- A response has at least one partition with records, an error or a divergence; partitions with no news are left out.
- Partitions that had records move behind those that had none, so that a busy partition starves none.
- The stream ends after a response in which a partition has an error or diverges, and when the broker stops.
- A subscription without partitions is refused.
- The next fetch starts only once the previous response has been consumed: a slow consumer slows the reads down.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from sparklog.base.errors import InvalidRequest
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Handler, Handlers, Operation
from sparklog.broker.apis import fetch
from sparklog.broker.apis.fetch import FetchRequest, FetchResponse, PartitionFetch, PartitionFetchResult
from sparklog.runtime.purgatory import Purgatory

WAIT_MS = 60_000  # bounds the delay after a lost wake-up


class SubscribeRequest(Struct, frozen=True, kw_only=True):
    max_bytes: int
    partitions: Sequence[PartitionFetch]
    is_read_committed: bool = False
    read: Callable[[Handler[FetchRequest, FetchResponse], FetchRequest], Awaitable[FetchResponse]]
    """Calls the handler of Fetch. A listener that lacks memory may call it again for less."""


async def handle(
    request: SubscribeRequest, *, handlers: Handlers, waiting: Purgatory[TopicPartition]
) -> AsyncIterator[FetchResponse]:
    """Return the stream of responses, which raises as `stream` does."""
    return stream(request, read=partial(request.read, handlers[fetch.API]), waiting=waiting)


async def stream(
    request: SubscribeRequest, *, read: Handler[FetchRequest, FetchResponse], waiting: Purgatory[TopicPartition]
) -> AsyncIterator[FetchResponse]:
    """Yield responses with news, until one has an error or a divergence, or the broker stops.

    Raises as `read` does, and InvalidRequest if there are no partitions.
    """
    if not request.partitions:
        raise InvalidRequest("a subscription to no partitions")
    partitions = list(request.partitions)
    while not waiting.is_released:
        response = await read(
            FetchRequest(
                max_wait_ms=WAIT_MS,
                min_bytes=1,
                max_bytes=request.max_bytes,
                partitions=partitions,
                is_read_committed=request.is_read_committed,
            ),
        )
        told = [part for part in response.partitions if part.slice or part.error or part.diverging]
        if told:
            yield FetchResponse(partitions=told)
        if response.has_error or any(part.diverging for part in told):
            return
        partitions = _advance(partitions, response.partitions)


def _advance(asked: Sequence[PartitionFetch], fetched: Sequence[PartitionFetchResult]) -> list[PartitionFetch]:
    pairs = list(zip(asked, fetched, strict=True))
    quiet = [part for part, result in pairs if not result.slice]
    busy = [
        replace(part, fetch_offset=result.next_offset, last_fetched_epoch=None)
        for part, result in pairs
        if result.slice
    ]
    return quiet + busy


SUBSCRIBE = Operation(handle=handle, rights=())  # the listener checks the rights to each fetch
