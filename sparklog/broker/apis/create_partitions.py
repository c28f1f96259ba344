"""CreatePartitions: add partitions to topics (key 37).

- `total` is the new number of partitions. A number that is not larger than the present one is refused
  (INVALID_PARTITIONS): a topic never loses partitions.
- From then on keys are spread over all partitions, so later records of a key may be in another partition than earlier
  ones.
- A topic that is named twice is refused (INVALID_REQUEST), both times.
- Replicas assigned by hand are checked; there must be one list for each new partition.
- The new partitions have leaders once the response has come. If that takes longer than `timeout_ms`, the answer is
  REQUEST_TIMED_OUT and they are still created. REASSIGNMENT_IN_PROGRESS while partitions of the topic are reassigned.
- Versions 0 to 3, as in Kafka 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import InvalidReplicaAssignment, InvalidRequest, KafkaError
from sparklog.broker.api import Api
from sparklog.broker.assignments import Replicas, check_replicas
from sparklog.broker.rights import TOPIC, OnEach
from sparklog.broker.topics import TIMEOUT_MS, Topics
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.security.quotas import Mutate, unlimited


class NewPartitions(Struct, frozen=True, kw_only=True):
    name: str
    total: int
    assignments: Sequence[Replicas] | None = None
    """The replicas of each new partition; None: the broker assigns them."""


class CreatePartitionsRequest(Struct, frozen=True, kw_only=True):
    topics: Sequence[NewPartitions]
    validate_only: bool = False
    timeout_ms: int = TIMEOUT_MS
    mutate: Mutate = unlimited
    """Counts the partitions against the client's controller_mutation_rate."""


class PartitionCreationResult(Struct, frozen=True, kw_only=True):
    """The result of one topic. `partitions` is the new total, 0 if there is an error."""

    name: str
    error: KafkaError | None = None
    partitions: int = 0


class CreatePartitionsResponse(Struct, frozen=True, kw_only=True):
    topics: Sequence[PartitionCreationResult]


async def handle(
    request: CreatePartitionsRequest, *, metadata: MetadataCache, topics: Topics
) -> CreatePartitionsResponse:
    """Return an error, or None, for each topic, in their order. Topics grow one after the other."""
    times = Counter(topic.name for topic in request.topics)
    return CreatePartitionsResponse(
        topics=[
            await _grow(metadata, topics, topic, request)
            if times[topic.name] == 1
            else PartitionCreationResult(name=topic.name, error=InvalidRequest("Duplicate topic name."))
            for topic in request.topics
        ]
    )


async def _grow(
    metadata: MetadataCache, topics: Topics, topic: NewPartitions, request: CreatePartitionsRequest
) -> PartitionCreationResult:
    try:
        _check_assignments(metadata, topic)
        total = await topics.grow(
            topic.name,
            topic.total,
            assignments=topic.assignments,
            validate_only=request.validate_only,
            timeout_ms=request.timeout_ms,
            mutate=request.mutate,
        )
    except KafkaError as error:
        return PartitionCreationResult(name=topic.name, error=error)
    return PartitionCreationResult(name=topic.name, partitions=total)


def _check_assignments(metadata: MetadataCache, topic: NewPartitions) -> None:
    if topic.assignments is None:
        return
    added = topic.total - len(metadata.get(topic.name).partitions)
    if 0 < added != len(topic.assignments):
        raise InvalidReplicaAssignment(
            f"Attempted to add {added} additional partition(s), but only {len(topic.assignments)} "
            "assignment(s) were specified."
        )
    check_replicas(topic.assignments, metadata.brokers)


def _refused(part: NewPartitions, error: KafkaError) -> PartitionCreationResult:
    return PartitionCreationResult(name=part.name, error=error)


API = Api(
    name="CreatePartitions",
    handle=handle,
    rights=(OnEach(AclOperation.ALTER, TOPIC, "topics", lambda part, access: part.name, _refused, "topics"),),
    key=37,
    versions=(0, 3),
)
