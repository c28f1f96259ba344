"""AlterReplicaLogDirs in Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import alter_replica_log_dirs
from sparklog.broker.apis.alter_replica_log_dirs import AlterReplicaLogDirsRequest, ReplicaLogDir
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import by_topic
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the error of each partition, or none, once the moves have begun."""
    response = await call.serve(
        alter_replica_log_dirs.API, AlterReplicaLogDirsRequest(replicas=list(_replicas(request)))
    )
    return _answer(call, response.errors)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each partition."""
    names = (TopicPartition(each.topic, each.partition) for each in _replicas(request))
    return _answer(call, dict.fromkeys(names, error))


def _replicas(request: Message) -> Iterator[ReplicaLogDir]:
    for log_dir in request.dirs:
        for topic in log_dir.topics:
            for number in topic.partitions:
                yield ReplicaLogDir(topic=topic.name, partition=number, path=log_dir.path)


def _answer(call: KafkaCall, errors: Mapping[TopicPartition, KafkaError | None]) -> Message:
    topics = by_topic(
        (name.topic, {"partition_index": name.partition, "error_code": error}) for name, error in errors.items()
    )
    return call.answer(results=[{"topic_name": name, "partitions": parts} for name, parts in topics.items()])


TRANSLATION = Translation(api=alter_replica_log_dirs.API, serve=serve, refuse=refuse)
