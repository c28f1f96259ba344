"""ACLs: the operations that principals may or must not do on resources, with the names and numbers of Kafka's protocol.

A binding says that a principal, from a host, is allowed or denied an operation on the resources of a pattern:

    ALLOW  User:billing  from 10.0.0.0/8  READ   TOPIC    orders    LITERAL
    DENY   User:*        from *           ALL    TOPIC    secret-   PREFIXED

Differs from Apache Kafka: a host may also be a network such as 10.0.0.0/8 (KIP-1276).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_network

from sparklog.base.errors import InvalidRequest

ANY_NAME = "*"
"""Every resource of a type, as the name of a literal pattern; every host."""
ANY_USER = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class AclResourceType(IntEnum):
    """Type of a resource (org.apache.kafka.common.resource.ResourceType)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way in which a pattern's name selects resources (org.apache.kafka.common.resource.PatternType)."""

    UNKNOWN = 0
    ANY = 1
    """In a filter: patterns of both types."""
    MATCH = 2
    """In a filter: patterns that apply to the resource of this name."""
    LITERAL = 3
    """The resource of this name; all resources if the name is ``*``."""
    PREFIXED = 4
    """Resources whose names begin with this name."""


class AclOperation(IntEnum):
    """Operation on a resource (org.apache.kafka.common.acl.AclOperation)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether a binding allows or denies (org.apache.kafka.common.acl.AclPermissionType)."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


def kafka_name(member: IntEnum) -> str:
    """Return a member's name in the form of Kafka's tools and JSON, such as DescribeConfigs."""
    return member.name.title().replace("_", "")


_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
)
OPERATIONS: dict[AclResourceType, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: (
        _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (_READ, _DELETE, _DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
    AclResourceType.CLUSTER: (
        _CREATE, _ALTER, _DESCRIBE, AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS, AclOperation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (_WRITE, _DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    AclResourceType.DELEGATION_TOKEN: (_DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations that a resource type has, as in Kafka's AclEntry.supportedOperations; ALL stands for all of them."""


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One ACL. `check` validates it."""

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType
    principal: str
    """Type and name, such as ``User:alice``; ``User:*`` for everybody."""
    host: str
    """An address, a network such as ``10.0.0.0/8``, or ``*`` for all hosts."""
    operation: AclOperation
    permission: AclPermission

    def check(self) -> None:
        """Raise InvalidRequest if the binding cannot be created, as Kafka's AclControlManager.validateNewAcl does."""
        if self.resource_type not in OPERATIONS:
            raise InvalidRequest(f"Invalid resourceType {self.resource_type.name}")
        if self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
            raise InvalidRequest(f"Invalid patternType {self.pattern_type.name}")
        if self.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
            raise InvalidRequest(f"Invalid operation {self.operation.name}")
        if self.permission not in (AclPermission.DENY, AclPermission.ALLOW):
            raise InvalidRequest(f"Invalid permissionType {self.permission.name}")
        if not self.name:
            raise InvalidRequest("Resource name should not be empty")
        if self.resource_type is AclResourceType.CLUSTER and self.name != CLUSTER_NAME:
            raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
        kind, colon, user = self.principal.partition(":")
        if not (kind and colon and user):
            raise InvalidRequest(
                f"Could not parse principal from `{self.principal}`: expected TYPE:NAME, as User:alice"
            )
        if self.host != ANY_NAME and "/" in self.host:
            try:
                ip_network(self.host)
            except ValueError as error:
                raise InvalidRequest(f"Invalid host {self.host}: {error}") from None
        elif not self.host:
            raise InvalidRequest(f"Host should not be empty; {ANY_NAME} stands for all hosts")

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.principal} from {self.host} {self.operation.name} on "
            f"{self.resource_type.name} {self.name} ({self.pattern_type.name})"
        )


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Selects bindings; None and ANY select all (org.apache.kafka.common.acl.AclBindingFilter)."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def check(self) -> None:
        """Raise InvalidRequest if a part is UNKNOWN."""
        for part in (self.resource_type, self.pattern_type, self.operation, self.permission):
            if not part:
                raise InvalidRequest(f"The filter has an unknown {type(part).__name__}")

    def matches(self, binding: AclBinding) -> bool:
        """Return whether the filter selects the binding."""
        return (
            self.resource_type in (AclResourceType.ANY, binding.resource_type)
            and self._has_name(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (AclPermission.ANY, binding.permission)
        )

    def _has_name(self, binding: AclBinding) -> bool:
        if self.pattern_type is not PatternType.MATCH:
            is_of_type = self.pattern_type in (PatternType.ANY, binding.pattern_type)
            return is_of_type and self.name in (None, binding.name)
        if self.name is None:
            return True
        if binding.pattern_type is PatternType.LITERAL:
            return binding.name in (self.name, ANY_NAME)
        return self.name.startswith(binding.name)
