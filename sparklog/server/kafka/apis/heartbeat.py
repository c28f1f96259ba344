"""Heartbeat in Kafka's protocol."""

from __future__ import annotations

from sparklog.broker.apis import group_apis
from sparklog.group.requests import Heartbeat
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    wanted = Heartbeat(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
    )
    response = await call.broker.serve(group_apis.HEARTBEAT, wanted)
    return call.answer(error_code=response.error)


TRANSLATION = Translation(api=group_apis.HEARTBEAT, serve=serve)
