"""ConsumerGroupDescribe: groups of the newer consumer protocol (KIP-848), with their members.

Key 69, versions 0 and 1, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.requests import ConsumerGroupDescribe, ConsumerGroupDescribeResponse

API: Api[ConsumerGroupDescribe, ConsumerGroupDescribeResponse] = Api(
    name="ConsumerGroupDescribe",
    handle=lambda services, request: services.groups.consumer_describe(request),
    key=69,
    versions=(0, 1),
)
