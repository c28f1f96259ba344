"""SaslHandshake in Kafka's protocol. After version 0, tokens are sent without a request (`Session.opaque`)."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import sasl_handshake
from sparklog.broker.apis.sasl_handshake import SaslHandshakeRequest
from sparklog.broker.node import Broker
from sparklog.server.kafka import sasl
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Session, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    authentication = call.session.authentication
    await call.broker.serve(
        sasl_handshake.API, SaslHandshakeRequest(authentication=authentication, mechanism=request.mechanism)
    )
    if call.version == 0:
        call.session.opaque = _take_bare
    return call.answer(mechanisms=_enabled(call))


async def _take_bare(broker: Broker, session: Session, token: bytes) -> bytes:
    done = await sasl.take_token(broker, session, token)
    if session.authentication and session.authentication.is_complete:
        session.opaque = None
    return done.token


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    call.session.is_over = call.session.authentication is not None
    return call.answer(error_code=error, mechanisms=_enabled(call))


def _enabled(call: KafkaCall) -> tuple[str, ...]:
    authentication = call.session.authentication
    return tuple(authentication.mechanisms) if authentication else ()


TRANSLATION = Translation(api=sasl_handshake.API, serve=serve, refuse=refuse)
