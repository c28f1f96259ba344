"""OffsetFetch: read the committed offsets of groups.

Key 9, versions 1 to 10, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import OffsetFetch, OffsetFetchResponse


async def handle(request: OffsetFetch, *, groups: GroupCoordinator) -> OffsetFetchResponse:
    return await groups.fetch_offsets(request)


API = Api(name="OffsetFetch", handle=handle, key=9, versions=(1, 10))
