"""ConsumerGroupDescribe in Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog.base.acls import AclResourceType
from sparklog.base.errors import KafkaError
from sparklog.broker.apis import group_apis
from sparklog.group.requests import ConsumerGroupDescribe, DescribedConsumer, DescribedConsumerGroup
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import message_of
from sparklog.server.kafka.topic_ids import TopicIds
from sparklog.server.kafka.translation import OPERATIONS_NOT_ASKED, KafkaCall, Translation, WideArrays
from sparklog.server.kafka.wide_requests import answer_in_parts

CLASSIC, CONSUMER = 0, 1
WIDE = WideArrays(("group_ids",), ("groups", "members"), once=True)


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the groups; those with many members are translated in parts."""
    response = await call.serve(group_apis.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribe(group_ids=request.group_ids))
    ask = request.include_authorized_operations
    operations = {
        group.group_id: call.operations(AclResourceType.GROUP, group.group_id, is_asked=ask)
        for group in response.groups
    }

    def make(parts: list[tuple[DescribedConsumerGroup, list[DescribedConsumer]]]) -> Message:
        return call.answer(
            groups=[_group(call, group, members, operations=operations[group.group_id]) for group, members in parts]
        )

    return await answer_in_parts(call, response.groups, lambda group: group.members, make, WIDE.response_arrays, _weigh)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each group."""
    groups = [DescribedConsumerGroup(group_id=group_id, error=error) for group_id in request.group_ids]
    return call.answer(groups=[_group(call, group, (), operations=OPERATIONS_NOT_ASKED) for group in groups])


def _weigh(member: DescribedConsumer) -> int:
    return 1 + len(member.subscribed_topic_names) + len(member.assignment) + len(member.target_assignment)


def _group(
    call: KafkaCall, group: DescribedConsumerGroup, members: Sequence[DescribedConsumer], *, operations: int
) -> dict[str, Any]:
    ids = TopicIds(call.broker)
    return {
        "error_code": group.error,
        "error_message": message_of(group.error),
        "group_id": group.group_id,
        "group_state": "" if group.error else group.state,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "members": [_member(member, ids) for member in members],
        "authorized_operations": OPERATIONS_NOT_ASKED if group.error else operations,
    }


def _member(member: DescribedConsumer, ids: TopicIds) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.subscribed_topic_names,
        "subscribed_topic_regex": member.subscribed_topic_regex or "",
        "assignment": {"topic_partitions": ids.named_fields(member.assignment)},
        "target_assignment": {"topic_partitions": ids.named_fields(member.target_assignment)},
        "member_type": CLASSIC if member.is_classic else CONSUMER,
    }


TRANSLATION = Translation(api=group_apis.CONSUMER_GROUP_DESCRIBE, serve=serve, refuse=refuse, wide=WIDE)
