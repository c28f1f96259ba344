"""ElectLeaders in Kafka's protocol. Version 0 supports preferred elections only."""

from __future__ import annotations

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import elect_leaders
from sparklog.broker.apis.elect_leaders import ElectLeadersRequest
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.responses import by_topic, message_of
from sparklog.server.kafka.translation import KafkaCall, Translation

PREFERRED, UNCLEAN = 0, 1


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the error of each partition, or none. Raises InvalidRequest for an unknown type of election."""
    partitions = None
    if request.topic_partitions is not None:
        partitions = [
            TopicPartition(topic.topic, number) for topic in request.topic_partitions for number in topic.partitions
        ]
    election = getattr(request, "election_type", PREFERRED)
    if election not in {PREFERRED, UNCLEAN}:
        raise InvalidRequest(f"there is no election type {election}")
    wanted = ElectLeadersRequest(
        partitions=partitions, is_unclean=election == UNCLEAN, timeout_ms=whole_ms(request.timeout)
    )
    response = await call.serve(elect_leaders.API, wanted)
    topics = by_topic(
        (
            name.topic,
            {"partition_id": name.partition, "error_code": error, "error_message": message_of(error)},
        )
        for name, error in response.errors.items()
    )
    return call.answer(
        replica_election_results=[{"topic": name, "partition_result": parts} for name, parts in topics.items()]
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error and without partitions."""
    return call.answer(error_code=error, replica_election_results=[])


TRANSLATION = Translation(api=elect_leaders.API, serve=serve, refuse=refuse)
