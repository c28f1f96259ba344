"""The APIs of a broker: one file for each, and this table of them."""

from __future__ import annotations

from typing import Any

from sparklog.broker.api import Api
from sparklog.broker.apis import (
    alter_configs,
    api_versions,
    consumer_group_describe,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topics,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_topics,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
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
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    delete_groups.API,
    offset_delete.API,
    consumer_group_describe.API,
)
