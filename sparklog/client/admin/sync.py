"""The admin client for code without an event loop."""

from __future__ import annotations

from typing import Unpack

from sparklog.client.admin.admin import AsyncAdmin
from sparklog.client.base import SyncClient, blocking
from sparklog.client.options import AdminOptions


class Admin(SyncClient[AsyncAdmin]):
    """Client that manages topics, groups, transactions and brokers.

        with Admin(bootstrap_servers="127.0.0.1:9094") as admin:
            admin.create_topic("orders", partitions=6, configs={"retention.ms": "86400000"})

    Options are those of AdminConfig; raises ConfigError for an invalid one. The methods are those of AsyncAdmin.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        super().__init__(AsyncAdmin(**options))
        self.config = self._core.config

    create_topic = blocking(AsyncAdmin.create_topic)
    delete_topics = blocking(AsyncAdmin.delete_topics)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    create_partitions = blocking(AsyncAdmin.create_partitions)
    describe_configs = blocking(AsyncAdmin.describe_configs)
    alter_configs = blocking(AsyncAdmin.alter_configs)
    alter_broker_configs = blocking(AsyncAdmin.alter_broker_configs)
    delete_records = blocking(AsyncAdmin.delete_records)
    list_offsets = blocking(AsyncAdmin.list_offsets)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    describe_log_dirs = blocking(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = blocking(AsyncAdmin.alter_replica_log_dirs)
    alter_partition_reassignments = blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = blocking(AsyncAdmin.list_partition_reassignments)
    elect_leaders = blocking(AsyncAdmin.elect_leaders)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_groups = blocking(AsyncAdmin.describe_groups)
    delete_groups = blocking(AsyncAdmin.delete_groups)
    list_group_offsets = blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = blocking(AsyncAdmin.delete_group_offsets)
    describe_acls = blocking(AsyncAdmin.describe_acls)
    create_acls = blocking(AsyncAdmin.create_acls)
    delete_acls = blocking(AsyncAdmin.delete_acls)
    describe_client_quotas = blocking(AsyncAdmin.describe_client_quotas)
    alter_client_quotas = blocking(AsyncAdmin.alter_client_quotas)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    describe_transactions = blocking(AsyncAdmin.describe_transactions)
    describe_producers = blocking(AsyncAdmin.describe_producers)
    find_hanging_transactions = blocking(AsyncAdmin.find_hanging_transactions)
    abort_transaction = blocking(AsyncAdmin.abort_transaction)
    close = blocking(AsyncAdmin.close)
