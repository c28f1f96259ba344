"""AlterConfigs: replace the whole configuration of topics or brokers (key 33).

- Keys that the request does not name return to their defaults. IncrementalAlterConfigs changes single keys; this older
  API serves tools that know nothing else, over Kafka's protocol only.
- INVALID_REQUEST for a resource that is named twice or has more keys than IncrementalAlterConfigs accepts, for a key
  without a value, and for a broker's key that cannot be changed while the broker runs.
- Versions 0 to 2, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.base.errors import InvalidRequest
from sparklog.broker.api import Api
from sparklog.broker.apis.incremental_alter_configs import (
    ResourceResult,
    Revise,
    ReviseBroker,
    alter_each,
    check_count,
)
from sparklog.broker.resources import ConfigResource
from sparklog.broker.topics import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class NewConfigs:
    resource: ConfigResource
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsRequest:
    resources: Sequence[NewConfigs]
    validate_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterConfigsResponse:
    resources: Sequence[ResourceResult]


async def handle(request: AlterConfigsRequest, *, topics: Topics) -> AlterConfigsResponse:
    results = await alter_each(
        topics, request.resources, _replacement, _broker_replacement, validate_only=request.validate_only
    )
    return AlterConfigsResponse(resources=results)


def _replacement(new: NewConfigs) -> Revise:
    overrides = _overrides(new)
    return lambda _: overrides


def _broker_replacement(new: NewConfigs) -> ReviseBroker:
    overrides = _overrides(new)
    return lambda _: overrides


def _overrides(new: NewConfigs) -> dict[str, str]:
    """Return the new overrides. Raises InvalidRequest for too many keys or a null value."""
    check_count(new.configs)
    overrides = {name: value for name, value in new.configs.items() if value is not None}
    if missing := new.configs.keys() - overrides.keys():
        raise InvalidRequest(f"Null value not supported for topic configs: {','.join(sorted(missing))}")
    return overrides


API = Api(name="AlterConfigs", handle=handle, key=33, versions=(0, 2))
