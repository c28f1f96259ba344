"""ListGroups in Kafka's protocol: filters by state from version 4 on, by type from version 5 on."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import group_apis
from sparklog.group.requests import ListedGroup, ListGroups
from sparklog.server.kafka.long_answers import answer_in_parts
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message | tuple[bytes]:
    wanted = ListGroups(states=getattr(request, "states_filter", ()), types=getattr(request, "types_filter", ()))
    response = await call.broker.serve(group_apis.LIST_GROUPS, wanted)

    def answer(groups: Sequence[ListedGroup]) -> Message:
        return call.answer(error_code=response.error, groups=[_group(group) for group in groups])

    return await answer_in_parts(call, "groups", response.groups, answer)


def _group(group: ListedGroup) -> dict[str, str]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state,
        "group_type": group.type,
    }


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, groups=[])


TRANSLATION = Translation(api=group_apis.LIST_GROUPS, serve=serve, refuse=refuse)
