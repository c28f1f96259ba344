"""DescribeCluster: describe the cluster's id, its brokers and its controller (key 60, versions 0 to 2).

The answer shows what the controller has sent this broker; the controller id is -1 while no controller is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from sparklog.broker.api import Api
from sparklog.broker.resources import CORDONED
from sparklog.cluster.metadata_cache import NO_CONTROLLER, MetadataCache
from sparklog.cluster.model import BrokerInfo
from sparklog.security.authorizer import Authorizer


class DescribeClusterRequest(Struct, frozen=True, kw_only=True):
    pass


class DescribeClusterResponse(Struct, frozen=True, kw_only=True):
    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerInfo]
    cordoned: Sequence[int]


async def handle(
    request: DescribeClusterRequest, *, cluster_id: str, metadata: MetadataCache
) -> DescribeClusterResponse:
    """Return the cluster as this broker knows it."""
    return DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=metadata.controller_id if metadata.controller else NO_CONTROLLER,
        brokers=list(metadata.brokers.values()),
        cordoned=metadata.brokers_with(CORDONED),
    )


def _generation(*, authorizer: Authorizer, metadata: MetadataCache) -> int:
    return authorizer.version + metadata.generation


API = Api(name="DescribeCluster", handle=handle, rights=(), key=60, versions=(0, 2), cached_by=_generation)
