"""ApiVersions in Kafka's protocol. The response header has no tagged fields in any version (KIP-511).

As in Apache Kafka, a software name or version gets INVALID_REQUEST unless it consists of letters, digits, '-' and '.',
and begins and ends with a letter or digit.
"""

from __future__ import annotations

import re
from functools import lru_cache

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.broker.api import ApiVersion
from sparklog.broker.apis import api_versions
from sparklog.broker.apis.api_versions import ApiVersionsRequest, Feature
from sparklog.broker.sasl import API_VERSIONS
from sparklog.server.kafka.messages import Message, make, response_type
from sparklog.server.kafka.translation import KafkaCall, Session, Translation

PRODUCE = 0
FINALIZED_EPOCH = 0
FIRST_WITH_SOFTWARE = 3
FIRST_WITH_LEVEL_0 = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def serve(call: KafkaCall, request: Message) -> Message:
    """Note the client's software and return the table. Raises InvalidRequest for an invalid name or version."""
    if call.version >= FIRST_WITH_SOFTWARE:
        for said in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(said):
                raise InvalidRequest(f"{said!r} is no name or version of software")
        _note_software(call.session, request)
    response = await call.serve(api_versions.API, ApiVersionsRequest())
    return _answer(call.version, tuple(response.apis), tuple(response.features))


def _note_software(session: Session, request: Message) -> None:
    """Note the client's software."""
    if request.__version__ >= FIRST_WITH_SOFTWARE:
        session.named(request.client_software_name, request.client_software_version)


@lru_cache(16)
def _answer(version: int, apis: tuple[ApiVersion, ...], features: tuple[Feature, ...]) -> Message:
    """Return the response, with hundreds of values."""
    return make(
        response_type(API_VERSIONS, version),
        api_keys=[
            {
                "api_key": api.key,
                "min_version": 0 if api.key == PRODUCE else api.min_version,
                "max_version": api.max_version,
            }
            for api in apis
        ],
        supported_features=[
            {"name": each.name, "min_version": _min_level(version, each), "max_version": each.max_level}
            for each in features
        ],
        finalized_features_epoch=FINALIZED_EPOCH,
        finalized_features=[
            {"name": each.name, "max_version_level": each.max_level, "min_version_level": each.max_level}
            for each in features
        ],
    )


def _min_level(version: int, feature: Feature) -> int:
    """Return the lowest level; clients of version 3 do not accept 0 (KIP-1022)."""
    return feature.min_level if version >= FIRST_WITH_LEVEL_0 else max(1, feature.min_level)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error and without the table."""
    return call.answer(error_code=error, api_keys=[])


TRANSLATION = Translation(api=api_versions.API, serve=serve, refuse=refuse, note_session=_note_software)
