"""SaslHandshake and SaslAuthenticate in Kafka's protocol.

After version 0 of SaslHandshake, tokens are sent without a request (`Session.opaque`).
"""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import sasl
from sparklog.broker.apis.sasl import SaslHandshakeRequest
from sparklog.broker.node import Broker
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.sasl import take_token
from sparklog.server.kafka.translation import KafkaCall, Session, Translation


async def _choose_mechanism(call: KafkaCall, request: Message) -> Message:
    authentication = call.session.authentication
    await call.serve(
        sasl.SASL_HANDSHAKE, SaslHandshakeRequest(authentication=authentication, mechanism=request.mechanism)
    )
    if call.version == 0:
        call.session.expect_tokens(_take_bare)
    return call.answer(mechanisms=_enabled(call))


async def _take_bare(broker: Broker, session: Session, token: bytes) -> bytes:
    done = await take_token(broker, session, token)
    if session.authentication and session.authentication.is_complete:
        session.expect_tokens(None)
    return done.token


def _refuse_mechanism(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    if call.session.authentication:
        call.session.end()
    return call.answer(error_code=error, mechanisms=_enabled(call))


def _enabled(call: KafkaCall) -> tuple[str, ...]:
    authentication = call.session.authentication
    return tuple(authentication.mechanisms) if authentication else ()


async def _authenticate(call: KafkaCall, request: Message) -> Message:
    done = await take_token(call.broker, call.session, bytes(request.auth_bytes))
    lifetime = {"session_lifetime": done.session_lifetime_ms} if call.version >= 1 else {}
    return call.answer(error_message=None, auth_bytes=done.token, **lifetime)


def _refuse_to_authenticate(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=str(error), auth_bytes=b"")


SASL_HANDSHAKE = Translation(api=sasl.SASL_HANDSHAKE, serve=_choose_mechanism, refuse=_refuse_mechanism)
SASL_AUTHENTICATE = Translation(api=sasl.SASL_AUTHENTICATE, serve=_authenticate, refuse=_refuse_to_authenticate)
