"""OffsetFetch: how far a group has come.

Key 9, versions 1 to 10, as in Kafka 4.
"""

from __future__ import annotations

from sparklog.broker.api import Api
from sparklog.group.requests import OffsetFetch, OffsetFetchResponse

API: Api[OffsetFetch, OffsetFetchResponse] = Api(
    name="OffsetFetch", handle=lambda services, request: services.groups.fetch_offsets(request), key=9, versions=(1, 10)
)
