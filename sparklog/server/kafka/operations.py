"""What a client may do, as the bits that `*_authorized_operations` fields have (KIP-430).

Everybody may do everything: there is no authorizer. So a client that asks is told all that a kind of resource allows,
as Apache Kafka does without one; a client that does not ask is told NOT_ASKED.
"""

from __future__ import annotations

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8  # org.apache.kafka.common.acl.AclOperation
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
NOT_ASKED = -(2**31)


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ON_TOPIC = _bits(READ, WRITE, CREATE, DESCRIBE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_GROUP = _bits(READ, DESCRIBE, DELETE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_CLUSTER = _bits(CREATE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALTER, DESCRIBE)
