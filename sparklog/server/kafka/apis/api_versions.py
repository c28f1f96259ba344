"""ApiVersions in Kafka's protocol. The response header has no tagged fields in any version (KIP-511).

As in Apache Kafka, a software name or version gets INVALID_REQUEST unless it consists of letters, digits, '-' and '.',
and begins and ends with a letter or digit.
"""

from __future__ import annotations

import re

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.broker.apis import api_versions
from sparklog.broker.apis.api_versions import ApiVersionsRequest
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import KafkaCall, Translation

PRODUCE = 0
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def serve(call: KafkaCall, request: Message) -> Message:
    if call.version >= 3:
        for said in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(said):
                raise InvalidRequest(f"{said!r} is no name or version of software")
        call.session.client_software = f"{request.client_software_name} {request.client_software_version}"
    response = await call.broker.serve(api_versions.API, ApiVersionsRequest())
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


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    return call.answer(error_code=error, api_keys=[])


TRANSLATION = Translation(api=api_versions.API, serve=serve, refuse=refuse)
