"""ApiVersions: list the APIs of Kafka's protocol that are served, with their versions (key 18).

- The answer is the table in `apis/__init__.py`. Produce is announced from version 0, though it is served from 3, as in
  Apache Kafka 4: librdkafka before 2.6 takes a higher first version for a broker without compression (KAFKA-18659).
- An unknown version of this request is answered with UNSUPPORTED_VERSION and the table, in version 0.
- The feature `transaction.version` is announced at level 2, and finalized: clients that know protocol 2 of transactions
  use it (KIP-890). Every broker of this release serves it, so no level has to be agreed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from sparklog.broker.api import Api, ApiVersion


class Feature(NamedTuple):
    """A feature of the cluster, with the levels that a broker supports."""

    name: str
    min_level: int
    max_level: int


FEATURES = (Feature("transaction.version", 0, 2),)


class ApiVersionsRequest(Struct, frozen=True, kw_only=True):
    pass


class ApiVersionsResponse(Struct, frozen=True, kw_only=True):
    apis: Sequence[ApiVersion]
    features: Sequence[Feature]
    """The features that this broker supports. Each is finalized at its newest level."""


async def handle(request: ApiVersionsRequest, *, api_versions: tuple[ApiVersion, ...]) -> ApiVersionsResponse:
    """Return the APIs and features of this broker; the listener fits them to the version of the request."""
    return ApiVersionsResponse(apis=api_versions, features=FEATURES)


def _generation() -> int:
    return 0  # the table does not change while the broker runs


API = Api(name="ApiVersions", handle=handle, rights=(), key=18, versions=(0, 4), cached_by=_generation)
