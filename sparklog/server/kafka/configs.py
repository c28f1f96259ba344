"""Configurations in Kafka's protocol: the numbers of resource types, sources and value types."""

from __future__ import annotations

from sparklog.broker.config_entries import ConfigSource
from sparklog.broker.resources import ConfigResource, ResourceType

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32  # org.apache.kafka.common.config.ConfigResource
RESOURCE_TYPES = {
    TOPIC: ResourceType.TOPIC,
    BROKER: ResourceType.BROKER,
    CLIENT_METRICS: ResourceType.CLIENT_METRICS,
}
RESOURCE_NUMBERS = {ours: theirs for theirs, ours in RESOURCE_TYPES.items()}
NOT_SERVED = -1
SOURCES = {  # org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource
    ConfigSource.TOPIC_CONFIG: 1,
    ConfigSource.DYNAMIC_BROKER_CONFIG: 2,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: 3,
    ConfigSource.STATIC_BROKER_CONFIG: 4,
    ConfigSource.DEFAULT_CONFIG: 5,
    ConfigSource.CLIENT_METRICS_CONFIG: 7,
}
TYPES = {  # org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigType, of the keys that exist here
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "PASSWORD": 9,
}


def resource(number: int, name: str) -> ConfigResource:
    """Return the resource. A type without configuration becomes NOT_SERVED, which the handler refuses."""
    return ConfigResource(RESOURCE_TYPES.get(number, NOT_SERVED), name)
