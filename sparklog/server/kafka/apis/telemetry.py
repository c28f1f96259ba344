"""GetTelemetrySubscriptions and PushTelemetry in Kafka's protocol."""

from __future__ import annotations

from sparklog.base.client_metrics import ClientInstance
from sparklog.base.errors import KafkaError
from sparklog.broker.apis import telemetry
from sparklog.broker.apis.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation


async def _get(call: KafkaCall, request: Message) -> Message:
    wanted = GetTelemetrySubscriptionsRequest(client_instance_id=request.client_instance_id, client=_client(call))
    response = await call.serve(telemetry.GET_TELEMETRY_SUBSCRIPTIONS, wanted)
    return call.answer(
        client_instance_id=response.client_instance_id,
        subscription_id=response.subscription_id,
        accepted_compression_types=response.accepted_compression_types,
        push_interval=response.push_interval_ms,
        telemetry_max_bytes=response.telemetry_max_bytes,
        delta_temporality=response.delta_temporality,
        requested_metrics=response.requested_metrics,
    )


async def _push(call: KafkaCall, request: Message) -> Message:
    wanted = PushTelemetryRequest(
        client_instance_id=request.client_instance_id,
        client=_client(call),
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        compression_type=request.compression_type,
        metrics=request.metrics,
    )
    await call.serve(telemetry.PUSH_TELEMETRY, wanted)
    return call.answer()


def _client(call: KafkaCall) -> ClientInstance:
    session = call.session
    return ClientInstance.of(
        call.client_id or "", session.client_software, session.client_software_version, session.host, session.port
    )


def _refuse_to_get(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(
        error_code=error,
        client_instance_id=request.client_instance_id,
        subscription_id=0,
        accepted_compression_types=[],
        push_interval=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )


GET_TELEMETRY_SUBSCRIPTIONS = Translation(api=telemetry.GET_TELEMETRY_SUBSCRIPTIONS, serve=_get, refuse=_refuse_to_get)
PUSH_TELEMETRY = Translation(api=telemetry.PUSH_TELEMETRY, serve=_push)
