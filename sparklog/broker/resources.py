"""The resources that have a configuration: topics and subscriptions to client metrics by name, brokers by id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from msgspec import Struct

from sparklog.base.acls import CLUSTER_NAME, AclOperation
from sparklog.base.config import CHANGEABLE, find_broker_key
from sparklog.base.config_keys import PER_BROKER
from sparklog.base.errors import ConfigError, InvalidConfig, InvalidRequest, KafkaError
from sparklog.broker.rights import CLUSTER, TOPIC, Access, OnEach, Right
from sparklog.cluster.topics import ALL_BROKERS

CORDONED = "cordoned.log.dirs"


class ResourceType(IntEnum):
    TOPIC = 0
    BROKER = 1
    CLIENT_METRICS = 2


class ConfigResource(Struct, frozen=True):
    """A topic or a subscription by name, or a broker by id.

    An empty broker name: this broker to describe, all brokers to change.
    """

    type: int
    name: str

    def check_type(self) -> None:
        """Raises InvalidRequest if the type does not exist, or a subscription has no name."""
        if self.type not in tuple(ResourceType):
            raise InvalidRequest("only topics, brokers and subscriptions to client metrics have a configuration here")
        if self.type == ResourceType.CLIENT_METRICS and not self.name:
            raise InvalidRequest("Client metrics subscription name must not be empty")

    def check(self, broker_id: int) -> None:
        """Raises InvalidRequest if the type does not exist or the name is another broker's."""
        self.check_type()
        if self.type == ResourceType.BROKER and self.name not in ("", str(broker_id)):
            raise InvalidRequest(f"this is broker {broker_id}, not {self.name!r}")


def broker_named(name: str) -> int:
    """Return the broker's id, or ALL_BROKERS for an empty name. Raises InvalidRequest if it is no id."""
    if not name:
        return ALL_BROKERS
    if not (name.isascii() and name.isdigit()):
        raise InvalidRequest(f"{name!r} is not the id of a broker")
    return int(name)


def check_changeable(broker_id: int, overrides: Mapping[str, str]) -> None:
    """Raises InvalidRequest for a key that a running broker cannot change, InvalidConfig for an invalid value.

    broker_id: ALL_BROKERS for keys that are set for all brokers at once
    """
    for name, value in overrides.items():
        try:
            mode = find_broker_key(name).update_mode
            if name not in CHANGEABLE:
                raise InvalidRequest(
                    f"{name} cannot be changed while a broker runs (its update mode is {mode}): change the broker's "
                    "file and start it again"
                )
            if mode == PER_BROKER and broker_id == ALL_BROKERS:
                raise InvalidRequest(f"{name} cannot be set for all brokers at once: name the broker (--entity-name)")
            find_broker_key(name).parse(value)
        except ConfigError as wrong:
            raise InvalidConfig(str(wrong)) from None


def on_configs(operation: AclOperation, refused: Callable[[Any, KafkaError], Any]) -> tuple[Right, ...]:
    """Return the rights to configurations: of topics, on the topic; of other resources, on the cluster.

    refused: makes the result of a refused element
    """
    return (
        OnEach(operation, TOPIC, "resources", _topic, refused, "resources"),
        OnEach(operation, CLUSTER, "resources", _cluster, refused, "resources"),
    )


def _topic(element: Any, access: Access) -> str | None:
    resource: ConfigResource = element.resource
    return resource.name if resource.type == ResourceType.TOPIC else None


def _cluster(element: Any, access: Access) -> str | None:
    resource: ConfigResource = element.resource
    return CLUSTER_NAME if resource.type in (ResourceType.BROKER, ResourceType.CLIENT_METRICS) else None
