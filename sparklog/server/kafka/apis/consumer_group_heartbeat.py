"""ConsumerGroupHeartbeat in Kafka's protocol: topics by id. From version 1 on, members choose their ids (KIP-1082)."""

from __future__ import annotations

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.broker.apis import group_apis
from sparklog.group.requests import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResponse
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.topic_ids import TopicIds
from sparklog.server.kafka.translation import KafkaCall, Translation

FIRST_WITH_OWN_ID = 1


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the coordinator's answer. Raises InvalidRequest for a member without the id that it must choose."""
    if call.version >= FIRST_WITH_OWN_ID and not request.member_id:
        raise InvalidRequest("MemberId can't be empty.")
    ids = TopicIds(call.broker)
    owned = request.topic_partitions
    wanted = ConsumerGroupHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=call.client_id or "",
        client_host=call.client_host,
        group_instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=whole_ms(request.rebalance_timeout),
        subscribed_topic_names=request.subscribed_topic_names,
        subscribed_topic_regex=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned_partitions=None if owned is None else ids.partitions(owned),
    )
    return _answer(call, await call.serve(group_apis.CONSUMER_GROUP_HEARTBEAT, wanted))


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error and without an assignment."""
    return _answer(call, ConsumerGroupHeartbeatResponse(error=error))


def _answer(call: KafkaCall, response: ConsumerGroupHeartbeatResponse) -> Message:
    """Return the response. The ids are looked up again, because assigned topics may be newer than the request."""
    assigned = response.assignment
    ids = TopicIds(call.broker)
    return call.answer(
        error_code=response.error,
        error_message=message_of(response.error),
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval=response.heartbeat_interval_ms,
        assignment=None if assigned is None else {"topic_partitions": ids.fields(assigned)},
    )


TRANSLATION = Translation(api=group_apis.CONSUMER_GROUP_HEARTBEAT, serve=serve, refuse=refuse)
