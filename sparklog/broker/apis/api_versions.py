"""ApiVersions: list the APIs of Kafka's protocol that are served, with their versions (key 18).

- The answer is the table in `apis/__init__.py`. Produce is announced from version 0, though it is served from 3, as in
  Apache Kafka 4: librdkafka before 2.6 takes a higher first version for a broker without compression (KAFKA-18659).
- An unknown version of this request is answered with UNSUPPORTED_VERSION and the table, in version 0.
- No features are announced: nothing here depends on a cluster-wide feature level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.broker.api import Api, ApiVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    apis: Sequence[ApiVersion]


async def handle(request: ApiVersionsRequest, *, api_versions: tuple[ApiVersion, ...]) -> ApiVersionsResponse:
    return ApiVersionsResponse(apis=api_versions)


API = Api(name="ApiVersions", handle=handle, key=18, versions=(0, 4))
