"""JoinGroup in Kafka's protocol.

- Version 0 has no rebalance timeout; the session timeout is used for both.
- From version 4 on, a new member gets its id before it joins (KIP-394).
- From version 9 on, a static leader that comes back may be told to skip the assignment (KIP-814).
"""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import group_apis
from sparklog.group.requests import JoinGroup, JoinGroupResponse
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.translation import KafkaCall, Translation

FIRST_WITH_REBALANCE_TIMEOUT = 1
FIRST_WITH_KNOWN_MEMBER_ID = 4
FIRST_WITH_NULL_PROTOCOL = 7
FIRST_WITH_SKIP_ASSIGNMENT = 9


async def serve(call: KafkaCall, request: Message) -> Message:
    has_both = call.version >= FIRST_WITH_REBALANCE_TIMEOUT
    wanted = JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        client_id=call.client_id or "",
        client_host=call.client_host,
        protocol_type=request.protocol_type,
        protocols=[(protocol.name, protocol.metadata) for protocol in request.protocols],
        session_timeout_ms=whole_ms(request.session_timeout),
        rebalance_timeout_ms=whole_ms(request.rebalance_timeout if has_both else request.session_timeout),
        requires_known_member_id=call.version >= FIRST_WITH_KNOWN_MEMBER_ID,
        supports_skipping_assignment=call.version >= FIRST_WITH_SKIP_ASSIGNMENT,
        reason=getattr(request, "reason", None) or "",
    )
    return _answer(call, await call.broker.serve(group_apis.JOIN_GROUP, wanted))


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return _answer(call, JoinGroupResponse(error=error, member_id=request.member_id))


def _answer(call: KafkaCall, response: JoinGroupResponse) -> Message:
    return call.answer(
        error_code=response.error,
        generation_id=response.generation,
        protocol_type=response.protocol_type,
        protocol_name=response.protocol if call.version >= FIRST_WITH_NULL_PROTOCOL else response.protocol or "",
        leader=response.leader,
        skip_assignment=response.skip_assignment,
        member_id=response.member_id,
        members=[
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "metadata": member.metadata,
            }
            for member in response.members
        ],
    )


TRANSLATION = Translation(api=group_apis.JOIN_GROUP, serve=serve, refuse=refuse, max_elements=1_000)
