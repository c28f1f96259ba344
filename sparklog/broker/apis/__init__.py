"""The APIs of a broker: one file for each, and this table of them."""

from __future__ import annotations

from typing import Any

from sparklog.broker.api import Api
from sparklog.broker.apis import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topics,
    fetch,
    list_offsets,
    list_topics,
    produce,
)

APIS: tuple[Api[Any, Any], ...] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    create_topics.API,
    delete_topics.API,
    list_topics.API,
    describe_topics.API,
    create_partitions.API,
    describe_configs.API,
    alter_configs.API,
    delete_records.API,
    describe_cluster.API,
    describe_log_dirs.API,
    api_versions.API,
)
