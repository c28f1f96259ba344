"""The admin client for code without an event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.client.admin import AsyncAdmin
from sparklog.client.commits import Offsets
from sparklog.client.descriptions import (
    ClusterDescription,
    ConfigValue,
    LogDirDescription,
    Reassignment,
    TopicDescription,
    TopicListing,
)
from sparklog.client.group_descriptions import GroupDescription, GroupListing, GroupOffset
from sparklog.client.loop_thread import Blocking
from sparklog.client.offsets import ListedOffset, OffsetSpec
from sparklog.client.options import AdminOptions


class Admin(Blocking):
    """Manages topics.

        with Admin(bootstrap_servers="127.0.0.1:9094") as admin:
            admin.create_topic("orders", partitions=6, configs={"retention.ms": "86400000"})

    Options are those of AdminConfig. Raises ConfigError for any that is wrong. The methods are those of AsyncAdmin.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self._core = AsyncAdmin(**options)
        self.config = self._core.config
        super().__init__()

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> int:
        """As AsyncAdmin.create_topic."""
        return self._run(
            self._core.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
                validate_only=validate_only,
            )
        )

    def delete_topics(self, names: Iterable[str]) -> None:
        """As AsyncAdmin.delete_topics."""
        self._run(self._core.delete_topics(names))

    def list_topics(self, *, include_internal: bool = False) -> list[TopicListing]:
        """As AsyncAdmin.list_topics."""
        return self._run(self._core.list_topics(include_internal=include_internal))

    def describe_topics(self, names: Iterable[str]) -> list[TopicDescription]:
        """As AsyncAdmin.describe_topics."""
        return self._run(self._core.describe_topics(names))

    def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """As AsyncAdmin.create_partitions."""
        self._run(self._core.create_partitions(name, total, validate_only=validate_only))

    def describe_configs(self, *, topic: str | None = None, broker: int | None = None) -> dict[str, ConfigValue]:
        """As AsyncAdmin.describe_configs."""
        return self._run(self._core.describe_configs(topic=topic, broker=broker))

    def alter_configs(
        self,
        topic: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """As AsyncAdmin.alter_configs."""
        self._run(self._core.alter_configs(topic, set=set, unset=unset, validate_only=validate_only))

    def alter_broker_configs(
        self, broker: int, *, set: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        """As AsyncAdmin.alter_broker_configs."""
        self._run(self._core.alter_broker_configs(broker, set=set, unset=unset))

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """As AsyncAdmin.delete_records."""
        return self._run(self._core.delete_records(before))

    def list_offsets(self, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[TopicPartition, ListedOffset]:
        """As AsyncAdmin.list_offsets."""
        return self._run(self._core.list_offsets(wanted))

    def describe_cluster(self) -> ClusterDescription:
        """As AsyncAdmin.describe_cluster."""
        return self._run(self._core.describe_cluster())

    def describe_log_dirs(self, topics: Iterable[str] = ()) -> dict[int, list[LogDirDescription]]:
        """As AsyncAdmin.describe_log_dirs."""
        return self._run(self._core.describe_log_dirs(topics))

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError]:
        """As AsyncAdmin.alter_partition_reassignments."""
        return self._run(self._core.alter_partition_reassignments(targets))

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] = ()
    ) -> dict[TopicPartition, Reassignment]:
        """As AsyncAdmin.list_partition_reassignments."""
        return self._run(self._core.list_partition_reassignments(partitions))

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, KafkaError | None]:
        """As AsyncAdmin.elect_leaders."""
        return self._run(self._core.elect_leaders(partitions, unclean=unclean))

    def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[GroupListing]:
        """As AsyncAdmin.list_groups."""
        return self._run(self._core.list_groups(states=states, types=types))

    def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """As AsyncAdmin.describe_groups."""
        return self._run(self._core.describe_groups(group_ids))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """As AsyncAdmin.delete_groups."""
        self._run(self._core.delete_groups(group_ids))

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, GroupOffset]:
        """As AsyncAdmin.list_group_offsets."""
        return self._run(self._core.list_group_offsets(group_id, partitions))

    def alter_group_offsets(self, group_id: str, offsets: Offsets) -> None:
        """As AsyncAdmin.alter_group_offsets."""
        self._run(self._core.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """As AsyncAdmin.delete_group_offsets."""
        self._run(self._core.delete_group_offsets(group_id, partitions))

    def close(self) -> None:
        """As AsyncAdmin.close."""
        self._run(self._core.close())
