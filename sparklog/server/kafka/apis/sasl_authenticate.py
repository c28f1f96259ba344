"""SaslAuthenticate in Kafka's protocol."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import sasl_authenticate
from sparklog.server.kafka import sasl
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    done = await sasl.take_token(call.broker, call.session, bytes(request.auth_bytes))
    lifetime = {"session_lifetime": done.session_lifetime_ms} if call.version >= 1 else {}
    return call.answer(error_message=None, auth_bytes=done.token, **lifetime)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, error_message=str(error), auth_bytes=b"")


TRANSLATION = Translation(api=sasl_authenticate.API, serve=serve, refuse=refuse)
