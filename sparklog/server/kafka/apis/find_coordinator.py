"""FindCoordinator in Kafka's protocol: one key up to version 3, several from version 4 on.

The response has the coordinator's address of the listener that received the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparklog.base.errors import CoordinatorNotAvailable, KafkaError
from sparklog.broker.apis import find_coordinator
from sparklog.broker.apis.find_coordinator import GROUP, FindCoordinatorRequest, FoundCoordinator
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import broker_address, message_of
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays

FIRST_WITH_SEVERAL = 4


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the coordinator's address or the error of each key."""
    wanted = FindCoordinatorRequest(keys=_keys(call, request), key_type=getattr(request, "key_type", GROUP))
    response = await call.serve(find_coordinator.API, wanted)
    return _answer(call, response.coordinators)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each key."""
    return _answer(call, [FoundCoordinator(key=key, error=error) for key in _keys(call, request)])


def _keys(call: KafkaCall, request: Message) -> Sequence[str]:
    keys: Sequence[str] = request.coordinator_keys if call.version >= FIRST_WITH_SEVERAL else (request.key,)
    return keys


def _answer(call: KafkaCall, coordinators: Sequence[FoundCoordinator]) -> Message:
    listener = call.session.listener
    if call.version < FIRST_WITH_SEVERAL:
        return call.answer(**_coordinator(coordinators[0], listener))
    return call.answer(coordinators=[{"key": found.key, **_coordinator(found, listener)} for found in coordinators])


def _coordinator(found: FoundCoordinator, listener: str) -> dict[str, Any]:
    broker, error = found.broker, found.error
    if broker and listener not in broker.listeners:
        broker, error = None, CoordinatorNotAvailable(f"the coordinator has no listener {listener}")
    address = broker_address(broker, listener) if broker else {"host": "", "port": -1}
    return {
        "node_id": broker.broker_id if broker else -1,
        **address,
        "error_code": error,
        "error_message": message_of(error),
    }


TRANSLATION = Translation(
    api=find_coordinator.API,
    serve=serve,
    refuse=refuse,
    wide=WideArrays(("coordinator_keys",), ("coordinators",), once=True),
)
