"""ConsumerGroupDescribe: describe groups of the newer consumer protocol (KIP-848), with their members.

Key 69, versions 0 and 1, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.coordinator import GroupCoordinator
from sparklog.group.requests import ConsumerGroupDescribe, ConsumerGroupDescribeResponse


async def handle(request: ConsumerGroupDescribe, *, groups: GroupCoordinator) -> ConsumerGroupDescribeResponse:
    return await groups.consumer_describe(request)


API = Api(name="ConsumerGroupDescribe", handle=handle, key=69, versions=(0, 1))
