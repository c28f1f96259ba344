"""ApiVersions on Kafka's wire. Its response has no tagged fields in the header in any version (KIP-511)."""

from __future__ import annotations

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import api_versions
from sparklog.broker.apis.api_versions import ApiVersionsRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import Call, Translation

PRODUCE = 0


async def serve(call: Call, request: Message) -> Message:
    if call.version >= 3:
        call.session.client_software = f"{request.client_software_name} {request.client_software_version}"
    response = await call.serve(api_versions.API, ApiVersionsRequest())
    return call.answer(
        api_keys=[
            {
                "api_key": api.key,
                "min_version": 0 if api.key == PRODUCE else api.min_version,
                "max_version": api.max_version,
            }
            for api in response.apis
        ]
    )


def refuse(call: Call, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, api_keys=[])


TRANSLATION = Translation(api=api_versions.API, serve=serve, refuse=refuse)
