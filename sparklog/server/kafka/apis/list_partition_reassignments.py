"""ListPartitionReassignments on Kafka's wire."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import list_partition_reassignments
from sparklog.broker.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.text import message_of
from sparklog.server.kafka.translation import Call, Translation


async def serve(call: Call, request: Message) -> Message:
    await call.serve(list_partition_reassignments.API, ListPartitionReassignmentsRequest())
    return call.answer(error_message=None, topics=[])


def refuse(call: Call, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=message_of(error), topics=[])


TRANSLATION = Translation(api=list_partition_reassignments.API, serve=serve, refuse=refuse)
