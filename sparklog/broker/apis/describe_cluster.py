"""DescribeCluster: the cluster's id, its brokers, and which of them is the controller (key 60, versions 0 to 2).

As the controller has told this broker; -1 while no controller is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparklog.broker.api import Api
from sparklog.broker.services import Services
from sparklog.cluster.metadata_cache import NO_CONTROLLER
from sparklog.cluster.model import BrokerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterRequest:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterResponse:
    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerInfo]


async def handle(services: Services, request: DescribeClusterRequest) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        cluster_id=services.cluster_id,
        controller_id=services.metadata.controller_id if services.metadata.controller else NO_CONTROLLER,
        brokers=list(services.metadata.brokers.values()),
    )


API = Api(name="DescribeCluster", handle=handle, key=60, versions=(0, 2))
