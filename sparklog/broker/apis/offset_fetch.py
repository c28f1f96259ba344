"""OffsetFetch: how far a group has come.

Key 9, versions 1 to 10, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.group.requests import OffsetFetch, OffsetFetchResponse


async def handle(services: Services, request: OffsetFetch) -> OffsetFetchResponse:
    return await services.groups.fetch_offsets(request)


API = Api(name="OffsetFetch", handle=handle, key=9, versions=(1, 10))
