"""The APIs that alter the configuration of topics, brokers and subscriptions: of single keys, or as a whole.

Both:

- INVALID_REQUEST for a resource that is named twice, or has more than `MAX_KEYS` keys (no resource has so many).
- Of a broker, or of all brokers (an empty name), keys can be changed while it runs if their update mode is not
  read-only (docs/reference/configuration.md); of all brokers, those that are cluster-wide. Others get INVALID_REQUEST.
  Any broker accepts the change, whichever broker it is for.
- A subscription to client metrics (KIP-714) exists as long as it has a key. A change is stored when it is answered, and
  brokers hear of it a moment later.
- The versions are Kafka 4's.

IncrementalAlterConfigs (key 44, KIP-339), which the gRPC method AlterConfigs calls:

- SET gives a key a value, DELETE returns it to its default, APPEND and SUBTRACT change the words of a list, starting
  with the value in force; of a broker, with what was set for it at run time, or else the built-in default. The changes
  of one resource are applied all or none; once the response has come they are in force and durable.
- INVALID_REQUEST: a key is changed twice, or a change lacks the value it needs. INVALID_CONFIG: APPEND or SUBTRACT of a
  key that is no list.
- DELETE of a key that topics do not have is refused (INVALID_CONFIG), as it is a misspelling. Kafka ignores it.

AlterConfigs (key 33):

- Keys that the request does not name return to their defaults. This older API serves tools that know nothing else, over
  Kafka's protocol only.
- INVALID_REQUEST for a key without a value.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence, Sized
from enum import IntEnum
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.client_metrics import CLIENT_METRICS_KEYS, ClientMetricsConfig
from sparklog.base.config import find_broker_key
from sparklog.base.config_keys import Key, render
from sparklog.base.errors import ConfigError, InvalidConfig, InvalidRequest, KafkaError
from sparklog.base.topic_config import TOPIC_KEYS
from sparklog.broker.api import Api
from sparklog.broker.resources import ConfigResource, ResourceType, broker_named, on_configs
from sparklog.broker.topics import Topics
from sparklog.cluster.client_metrics import ClientMetricsStore
from sparklog.cluster.model import Topic

MAX_KEYS = 1_000
"""Maximum number of keys of one resource in a request. A listener can stop translating after one key more."""


class ConfigOperation(IntEnum):
    """The operations, numbered as in Kafka's protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class KeyChange(Struct, frozen=True, kw_only=True):
    name: str
    operation: int
    value: str | None = None


class ConfigChange(Struct, frozen=True, kw_only=True):
    resource: ConfigResource
    changes: Sequence[KeyChange]


class IncrementalAlterConfigsRequest(Struct, frozen=True, kw_only=True):
    resources: Sequence[ConfigChange]
    validate_only: bool = False


class NewConfigs(Struct, frozen=True, kw_only=True):
    resource: ConfigResource
    configs: Mapping[str, str | None]


class AlterConfigsRequest(Struct, frozen=True, kw_only=True):
    resources: Sequence[NewConfigs]
    validate_only: bool = False


class ResourceChange(Protocol):
    """A requested change of one resource."""

    @property
    def resource(self) -> ConfigResource:
        """The resource whose configuration changes."""
        ...


Requested = TypeVar("Requested", bound=ResourceChange)
Revise = Callable[[Topic], Mapping[str, str]]
"""Returns a topic's new overrides, given the present topic."""
ReviseKeys = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns a new configuration, given the present one."""


class Revisions(NamedTuple, Generic[Requested]):
    """How a request changes the configurations of each type of resource."""

    of_topic: Callable[[Requested], Revise]
    of_broker: Callable[[Requested], ReviseKeys]
    of_subscription: Callable[[Requested], ReviseKeys]


class ResourceResult(Struct, frozen=True, kw_only=True):
    resource: ConfigResource
    error: KafkaError | None = None


class IncrementalAlterConfigsResponse(Struct, frozen=True, kw_only=True):
    resources: Sequence[ResourceResult]


class AlterConfigsResponse(Struct, frozen=True, kw_only=True):
    resources: Sequence[ResourceResult]


async def alter_incrementally(
    request: IncrementalAlterConfigsRequest, *, client_metrics_store: ClientMetricsStore, topics: Topics
) -> IncrementalAlterConfigsResponse:
    """Return an error, or None, for each resource once the changes are stored. `validate_only` only checks them."""
    revisions = Revisions(_revision, _broker_revision, _subscription_revision)
    store, is_check = client_metrics_store, request.validate_only
    results = await _alter_each(topics, store, request.resources, revisions, validate_only=is_check)
    return IncrementalAlterConfigsResponse(resources=results)


async def alter(
    request: AlterConfigsRequest, *, client_metrics_store: ClientMetricsStore, topics: Topics
) -> AlterConfigsResponse:
    """Replace whole configurations; otherwise as `alter_incrementally`."""
    revisions = Revisions(_replacement, _replaced_keys, _replaced_keys)
    store, is_check = client_metrics_store, request.validate_only
    results = await _alter_each(topics, store, request.resources, revisions, validate_only=is_check)
    return AlterConfigsResponse(resources=results)


async def _alter_each(
    topics: Topics,
    client_metrics: ClientMetricsStore,
    wanted: Sequence[Requested],
    revisions: Revisions[Requested],
    *,
    validate_only: bool,
) -> list[ResourceResult]:
    """Change the configuration of each resource by its revision; a revision that is refused raises KafkaError."""
    times = Counter(each.resource for each in wanted)
    results = []
    for each in wanted:
        try:
            _check_alterable(each.resource, is_alone=times[each.resource] == 1)
            if each.resource.type == ResourceType.BROKER:
                broker_id = broker_named(each.resource.name)
                await topics.alter_broker(broker_id, revisions.of_broker(each), validate_only=validate_only)
            elif each.resource.type == ResourceType.CLIENT_METRICS:
                change = partial(_checked_keys, revisions.of_subscription(each))
                await asyncio.to_thread(client_metrics.change, each.resource.name, change, validate_only=validate_only)
            else:
                await topics.alter(each.resource.name, revisions.of_topic(each), validate_only=validate_only)
        except KafkaError as error:
            results.append(ResourceResult(resource=each.resource, error=error))
        else:
            results.append(ResourceResult(resource=each.resource))
    return results


def _revision(change: ConfigChange) -> Revise:
    _check_changes(change.changes)
    return lambda topic: _revise(
        topic.overrides, change.changes, partial(_change_list, TOPIC_KEYS, topic.config), TOPIC_KEYS
    )


def _subscription_revision(change: ConfigChange) -> ReviseKeys:
    _check_changes(change.changes)

    def revise(given: Mapping[str, str]) -> Mapping[str, str]:
        change_list = partial(_change_list, CLIENT_METRICS_KEYS, ClientMetricsConfig.parse(given))
        return _revise(given, change.changes, change_list, CLIENT_METRICS_KEYS)

    return revise


def _checked_keys(revise: ReviseKeys, given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the new keys of a subscription. Raises InvalidRequest or InvalidConfig if they are not valid."""
    revised = revise(given)
    ClientMetricsConfig.parse(revised)
    return revised


def _broker_revision(change: ConfigChange) -> ReviseKeys:
    _check_changes(change.changes)
    return lambda given: _revise(given, change.changes, partial(_change_broker_list, given))


def _check_alterable(resource: ConfigResource, *, is_alone: bool) -> None:
    """Raises InvalidRequest if the resource has no configuration that can be changed, or is named twice."""
    resource.check_type()
    if resource.type == ResourceType.TOPIC and not resource.name:
        raise InvalidRequest("Default topic resources are not allowed.")
    if not is_alone:
        raise InvalidRequest("Each resource must appear at most once.")


def _check_count(keys: Sized) -> None:
    """Raises InvalidRequest for more than `MAX_KEYS` keys."""
    if len(keys) > MAX_KEYS:
        raise InvalidRequest(f"more than {MAX_KEYS} keys of one resource at once")


def _check_changes(changes: Sequence[KeyChange]) -> None:
    _check_count(changes)
    if twice := [name for name, times in Counter(change.name for change in changes).items() if times > 1]:
        raise InvalidRequest(f"{', '.join(sorted(twice))}: changed twice in one request")
    for change in changes:
        if change.operation not in tuple(ConfigOperation):
            raise InvalidRequest(f"{change.name}: there is no operation {change.operation}")
        if change.value is None and change.operation != ConfigOperation.DELETE:
            raise InvalidRequest(f"{change.name}: a null value is only for DELETE")


def _revise(
    given: Mapping[str, str],
    changes: Sequence[KeyChange],
    change_list: Callable[[KeyChange], str],
    keys: Container[str] | None = None,
) -> dict[str, str]:
    """Return the `given` overrides with the changes applied; the values are not checked yet.

    change_list: returns a list's new value. keys: those that can be unset; None: any
    """
    overrides = dict(given)
    for change in changes:
        if change.operation == ConfigOperation.DELETE:
            if keys is not None and change.name not in keys:
                raise InvalidConfig(f"cannot unset {change.name}: there is no such key")
            overrides.pop(change.name, None)
        elif change.operation == ConfigOperation.SET:
            overrides[change.name] = change.value or ""
        else:
            overrides[change.name] = change_list(change)
    return overrides


def _change_list(keys: Mapping[str, Key], config: object, change: KeyChange) -> str:
    """Return the new value of a list. config: the values in force, as fields"""
    key = keys.get(change.name)
    return _changed(key, change, getattr(config, key.field) if key else ())


def _change_broker_list(given: Mapping[str, str], change: KeyChange) -> str:
    try:
        key = find_broker_key(change.name)
        return _changed(key, change, key.parse(given[change.name]) if change.name in given else key.default)
    except ConfigError as wrong:
        raise InvalidConfig(str(wrong)) from None


def _changed(key: Key | None, change: KeyChange, words: tuple[str, ...]) -> str:
    """Return a list's new value: its words with those of the change, or without them."""
    operation = ConfigOperation(change.operation)
    if key is None or key.bound.type != "LIST":
        raise InvalidConfig(f"Can't {operation.name} to key {change.name} because its type is not LIST.")
    given = [word.strip() for word in (change.value or "").split(",")]
    if operation == ConfigOperation.SUBTRACT:
        return render(tuple(word for word in words if word not in given))
    return render((*words, *(word for word in dict.fromkeys(given) if word not in words)))


def _replacement(new: NewConfigs) -> Revise:
    overrides = _overrides(new)
    return lambda _: overrides


def _replaced_keys(new: NewConfigs) -> ReviseKeys:
    overrides = _overrides(new)
    return lambda _: overrides


def _overrides(new: NewConfigs) -> dict[str, str]:
    """Return the new overrides. Raises InvalidRequest for too many keys or a null value."""
    _check_count(new.configs)
    overrides = {name: value for name, value in new.configs.items() if value is not None}
    if missing := new.configs.keys() - overrides.keys():
        raise InvalidRequest(f"Null value not supported for topic configs: {','.join(sorted(missing))}")
    return overrides


def _refused(change: ConfigChange | NewConfigs, error: KafkaError) -> ResourceResult:
    return ResourceResult(resource=change.resource, error=error)


INCREMENTAL_ALTER_CONFIGS = Api(
    name="IncrementalAlterConfigs",
    summary="change single keys of configurations and leave the others",
    handle=alter_incrementally,
    rights=on_configs(AclOperation.ALTER_CONFIGS, _refused),
    key=44,
    versions=(0, 1),
)
ALTER_CONFIGS = Api(
    name="AlterConfigs",
    summary="replace the whole configuration of topics or brokers",
    handle=alter,
    rights=on_configs(AclOperation.ALTER_CONFIGS, _refused),
    key=33,
    versions=(0, 2),
)
