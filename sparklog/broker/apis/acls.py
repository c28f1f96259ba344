"""The APIs of ACLs; refused, as there is no authorizer.

Every client that can connect may do everything. So the answer is SECURITY_DISABLED, as from Apache Kafka without an
authorizer; Kafka's tools know how to report it. The versions are Kafka 4's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from sparklog.base.errors import SecurityDisabled
from sparklog.broker.api import Api


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsRequest:
    """A request to list, create or delete ACLs; what it names is not read."""


async def handle(request: AclsRequest) -> NoReturn:
    """Refuse the request.

    Raises:
        SecurityDisabled: Always.
    """
    raise SecurityDisabled("No Authorizer is configured.")


_REFUSED = "refused, as there is no authorizer"
DESCRIBE_ACLS = Api(name="DescribeAcls", summary=f"list ACLs; {_REFUSED}", handle=handle, key=29, versions=(1, 3))
CREATE_ACLS = Api(name="CreateAcls", summary=f"create ACLs; {_REFUSED}", handle=handle, key=30, versions=(1, 3))
DELETE_ACLS = Api(name="DeleteAcls", summary=f"delete ACLs; {_REFUSED}", handle=handle, key=31, versions=(1, 3))
