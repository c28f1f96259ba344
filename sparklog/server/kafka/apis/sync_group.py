"""SyncGroup in Kafka's protocol: from version 5 on, the member must send its protocol (KIP-559)."""

from __future__ import annotations

from sparklog.base.errors import InconsistentGroupProtocol, KafkaError
from sparklog.broker.apis import group_apis
from sparklog.group.requests import SyncGroup
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation

FIRST_WITH_PROTOCOL = 5


async def serve(call: KafkaCall, request: Message) -> Message:
    if call.version >= FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        raise InconsistentGroupProtocol("protocol type and name must be given")
    wanted = SyncGroup(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments={each.member_id: each.assignment for each in request.assignments},
    )
    response = await call.broker.serve(group_apis.SYNC_GROUP, wanted)
    return call.answer(
        error_code=response.error,
        protocol_type=response.protocol_type,
        protocol_name=response.protocol,
        assignment=response.assignment,
    )


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, assignment=b"")


TRANSLATION = Translation(api=group_apis.SYNC_GROUP, serve=serve, refuse=refuse)
