"""DeleteAcls: take back what was allowed or forbidden; refused, as there is no authorizer (key 31).

- Whoever may connect may do everything. So the answer is SECURITY_DISABLED, which is what Apache
  Kafka without an authorizer says, and what its tools know how to tell.
- Versions 1 to 3, as in Kafka 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from sparklog.base.errors import SecurityDisabled
from sparklog.broker.api import Api


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAclsRequest:
    pass


async def handle(request: DeleteAclsRequest) -> NoReturn:
    raise SecurityDisabled("No Authorizer is configured.")


API = Api(name="DeleteAcls", handle=handle, key=31, versions=(1, 3))
