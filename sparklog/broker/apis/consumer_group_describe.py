"""ConsumerGroupDescribe: groups of the newer consumer protocol (KIP-848), with their members.

Key 69, versions 0 and 1, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.group.requests import ConsumerGroupDescribe, ConsumerGroupDescribeResponse


async def handle(services: Services, request: ConsumerGroupDescribe) -> ConsumerGroupDescribeResponse:
    return await services.groups.consumer_describe(request)


API = Api(name="ConsumerGroupDescribe", handle=handle, key=69, versions=(0, 1))
