"""CreateAcls: create ACLs; refused, as there is no authorizer (key 30).

- Every client that can connect may do everything. So the answer is SECURITY_DISABLED, as from Apache Kafka without an
  authorizer; Kafka's tools know how to report it.
- Versions 1 to 3, as in Kafka 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from sparklog.base.errors import SecurityDisabled
from sparklog.broker.api import Api


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateAclsRequest:
    pass


async def handle(request: CreateAclsRequest) -> NoReturn:
    raise SecurityDisabled("No Authorizer is configured.")


API = Api(name="CreateAcls", handle=handle, key=30, versions=(1, 3))
