"""AlterConfigs: change single keys of topics' configurations and leave the others (KIP-339).

- `set` gives keys new values, `unset` gives them back to their defaults; no APPEND and SUBTRACT. A change of one
  resource is carried out as a whole or not at all; it is in force, and durable, once the response is there.
- A broker's configuration is read at its start and cannot be altered (INVALID_REQUEST).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.broker.api import Api
from sparklog.broker.resources import ConfigResource, ResourceType
from sparklog.broker.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    resource: ConfigResource
    set: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsRequest:
    changes: Sequence[ConfigChange]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceResult:
    resource: ConfigResource
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResponse:
    resources: Sequence[ResourceResult]


async def handle(services: Services, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        resources=[await _alter(services, change, validate_only=request.validate_only) for change in request.changes]
    )


async def _alter(services: Services, change: ConfigChange, *, validate_only: bool) -> ResourceResult:
    try:
        change.resource.check(services.config.broker_id)
        if change.resource.type == ResourceType.BROKER:
            raise InvalidRequest("a broker's configuration is read at its start: change its file and start it again")
        if both := set(change.set) & set(change.unset):
            raise InvalidRequest(f"{', '.join(sorted(both))}: set and unset in one request")
        await services.topics.alter(
            change.resource.name, changed=change.set, unset=change.unset, validate_only=validate_only
        )
    except KafkaError as error:
        return ResourceResult(resource=change.resource, error=error)
    return ResourceResult(resource=change.resource)


API = Api(name="AlterConfigs", handle=handle)
