"""DescribeClientQuotas: list the quotas of users and clients; always empty, as there are none (key 48).

- It is served because `kafka-configs.sh --describe --entity-type users` requests it before the SCRAM credentials.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.base.acls import AclOperation
from sparklog.broker.api import Api
from sparklog.broker.rights import on_cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasRequest:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClientQuotasResponse:
    pass


async def handle(request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse()


API = Api(
    name="DescribeClientQuotas",
    handle=handle,
    rights=(on_cluster(AclOperation.DESCRIBE_CONFIGS),),
    key=48,
    versions=(0, 1),
)
