"""Rights of a user on a broker in this process, for tests of listeners with an authorizer."""

from __future__ import annotations

from typing import Any

from sparklog.base.acls import CLUSTER_NAME, AclBinding, AclOperation, AclPermission, AclResourceType, PatternType
from sparklog.testing import RunningBroker

Right = tuple[AclOperation, AclResourceType, str]
Needed = tuple[Right, ...]
UNAUTHORIZED = {29, 30, 31, 53}
"""The codes of the errors for a topic, a group, the cluster and a transactional id."""


def on(*needed: Any) -> Needed:
    """Rights from operation, type and name in turns."""
    return tuple(zip(needed[::3], needed[1::3], needed[2::3], strict=True))


def on_cluster(operation: AclOperation) -> Needed:
    return on(operation, AclResourceType.CLUSTER, CLUSTER_NAME)


def allow(broker: RunningBroker, principal: str, needed: Needed, *denied: Right) -> None:
    """Let the principal do what is needed, and nothing else; at once, without the cluster store."""

    def acl(right: Right, permission: AclPermission) -> AclBinding:
        operation, resource_type, name = right
        return AclBinding(resource_type, name, PatternType.LITERAL, principal, "*", operation, permission)

    acls = [acl(each, AclPermission.ALLOW) for each in needed] + [acl(each, AclPermission.DENY) for each in denied]

    async def set_acls() -> None:
        broker.node.broker.services.authorizer.set_acls(acls)

    broker.run(set_acls())
