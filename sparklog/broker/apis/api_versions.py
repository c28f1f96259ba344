"""ApiVersions: which APIs of Kafka's protocol are served, in which versions (key 18).

- The table in `apis/__init__.py` is the answer. Produce is said to begin at version 0 though it begins at 3, as Apache
  Kafka 4 does: librdkafka before 2.6 takes a higher first version for a broker without compression (KAFKA-18659).
- A version of this request that is not known is answered with UNSUPPORTED_VERSION in version 0, and with the table.
- No features are announced: nothing here depends on a cluster-wide feature level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.broker.api import Api
from sparklog.broker.versions import ApiVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    apis: Sequence[ApiVersion]


async def handle(request: ApiVersionsRequest, *, api_versions: tuple[ApiVersion, ...]) -> ApiVersionsResponse:
    return ApiVersionsResponse(apis=api_versions)


API = Api(name="ApiVersions", handle=handle, key=18, versions=(0, 4))
