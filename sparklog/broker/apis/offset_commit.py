"""OffsetCommit: keep how far a group has come."""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.group.requests import OffsetCommit, OffsetCommitResponse


async def handle(services: Services, request: OffsetCommit) -> OffsetCommitResponse:
    return await services.groups.commit(request)


API = Api(name="OffsetCommit", handle=handle, key=8, versions=(2, 10))
