"""The layout of `__consumer_offsets`: keys and values of the committed offsets and the members of groups.

Classic groups and consumer groups are supported; share and streams groups are not. Reading and writing a record again
gives the same bytes (base/schemas.py).
"""

from __future__ import annotations

from sparklog.base.schemas import ZERO_ID, FieldSchema, Kinds, MessageSchema, array_of

_TOPIC_PARTITIONS = (FieldSchema("topicId", "uuid"), array_of("partitions", "int32"))
_ASSIGNED = (*_TOPIC_PARTITIONS, array_of("assignmentEpochs", "int32", tag=0, default=[]))
_NAMED_PARTITIONS = (FieldSchema("topic", "string"), array_of("partitions", "int32"))
_MEMBER = (
    FieldSchema("memberId", "string"),
    FieldSchema("groupInstanceId", "string", since=3),
    FieldSchema("clientId", "string"),
    FieldSchema("clientHost", "string"),
    FieldSchema("rebalanceTimeout", "int32", since=1),
    FieldSchema("sessionTimeout", "int32"),
    FieldSchema("subscription", "bytes"),
    FieldSchema("assignment", "bytes"),
)
_CLASSIC_MEMBER = (
    FieldSchema("sessionTimeoutMs", "int32"),
    array_of("supportedProtocols", (FieldSchema("name", "string"), FieldSchema("metadata", "bytes"))),
)
_OFFSET_KEY = (FieldSchema("group", "string"), FieldSchema("topic", "string"), FieldSchema("partition", "int32"))
_GROUP_KEY = (FieldSchema("groupId", "string"),)
_MEMBER_KEY = (FieldSchema("groupId", "string"), FieldSchema("memberId", "string"))

_OFFSET_COMMIT = MessageSchema(
    (
        FieldSchema("offset", "int64"),
        FieldSchema("leaderEpoch", "int32", since=3),
        FieldSchema("metadata", "string"),
        FieldSchema("commitTimestamp", "int64"),
        FieldSchema("expireTimestamp", "int64", since=1, until=1),
        FieldSchema("topicId", "uuid", since=4, tag=0, default=ZERO_ID),
    ),
    versions=4,
    flexible_since=4,
)
_GROUP_METADATA = MessageSchema(
    (
        FieldSchema("protocolType", "string"),
        FieldSchema("generation", "int32"),
        FieldSchema("protocol", "string"),
        FieldSchema("leader", "string"),
        FieldSchema("currentStateTimestamp", "int64", since=2),
        array_of("members", _MEMBER),
    ),
    versions=4,
    flexible_since=4,
)
_CONSUMER_GROUP = MessageSchema(
    (FieldSchema("epoch", "int32"), FieldSchema("metadataHash", "int64", tag=0, default=0)),
    versions=0,
    flexible_since=0,
)
_PARTITION_METADATA = MessageSchema(
    (
        array_of(
            "topics",
            (
                FieldSchema("topicId", "uuid"),
                FieldSchema("topicName", "string"),
                FieldSchema("numPartitions", "int32"),
                array_of("partitionMetadata", (FieldSchema("partition", "int32"), array_of("racks", "string"))),
            ),
        ),
    ),
    versions=0,
    flexible_since=0,
)
_CONSUMER_MEMBER = MessageSchema(
    (
        FieldSchema("instanceId", "string"),
        FieldSchema("rackId", "string"),
        FieldSchema("clientId", "string"),
        FieldSchema("clientHost", "string"),
        array_of("subscribedTopicNames", "string"),
        FieldSchema("subscribedTopicRegex", "string"),
        FieldSchema("rebalanceTimeoutMs", "int32"),
        FieldSchema("serverAssignor", "string"),
        FieldSchema(
            "classicMemberMetadata", _CLASSIC_MEMBER, tag=0, default={"sessionTimeoutMs": 0, "supportedProtocols": []}
        ),
    ),
    versions=0,
    flexible_since=0,
)
_ASSIGNMENT_EPOCH = MessageSchema(
    (FieldSchema("assignmentEpoch", "int32"), FieldSchema("assignmentTimestamp", "int64", tag=0, default=0)),
    versions=0,
    flexible_since=0,
)
_TARGET_ASSIGNMENT = MessageSchema((array_of("topicPartitions", _TOPIC_PARTITIONS),), versions=0, flexible_since=0)
_CURRENT_ASSIGNMENT = MessageSchema(
    (
        FieldSchema("memberEpoch", "int32"),
        FieldSchema("previousMemberEpoch", "int32"),
        FieldSchema("state", "int8"),
        array_of("assignedPartitions", _ASSIGNED),
        array_of("partitionsPendingRevocation", _ASSIGNED),
    ),
    versions=0,
    flexible_since=0,
)
_REGULAR_EXPRESSION = MessageSchema(
    (array_of("topics", "string"), FieldSchema("version", "int64"), FieldSchema("timestamp", "int64")),
    versions=0,
    flexible_since=0,
)
SUBSCRIPTION = MessageSchema(
    (
        array_of("topics", "string"),
        FieldSchema("userData", "bytes"),
        array_of("ownedPartitions", _NAMED_PARTITIONS, since=1),
        FieldSchema("generationId", "int32", since=2),
        FieldSchema("rackId", "string", since=3),
    ),
    versions=3,
)
ASSIGNMENT = MessageSchema(
    (array_of("assignedPartitions", _NAMED_PARTITIONS), FieldSchema("userData", "bytes")), versions=3
)

OFFSETS_TOPIC: Kinds = {
    0: (_OFFSET_KEY, _OFFSET_COMMIT),
    1: (_OFFSET_KEY, _OFFSET_COMMIT),
    2: ((FieldSchema("group", "string"),), _GROUP_METADATA),
    3: (_GROUP_KEY, _CONSUMER_GROUP),
    4: (_GROUP_KEY, _PARTITION_METADATA),
    5: (_MEMBER_KEY, _CONSUMER_MEMBER),
    6: (_GROUP_KEY, _ASSIGNMENT_EPOCH),
    7: (_MEMBER_KEY, _TARGET_ASSIGNMENT),
    8: (_MEMBER_KEY, _CURRENT_ASSIGNMENT),
    16: ((FieldSchema("groupId", "string"), FieldSchema("regularExpression", "string")), _REGULAR_EXPRESSION),
}
