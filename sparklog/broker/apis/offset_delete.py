"""OffsetDelete: forget offsets that a group has committed."""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.group.requests import OffsetDelete, OffsetDeleteResponse


async def handle(services: Services, request: OffsetDelete) -> OffsetDeleteResponse:
    return await services.groups.delete_offsets(request)


API = Api(name="OffsetDelete", handle=handle, key=47, versions=(0, 0))
