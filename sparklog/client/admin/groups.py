"""The admin client's calls about groups: members, committed offsets and lag.

Requests about one group go to its coordinator; lists are collected from all brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from sparklog.base.errors import LeaderNotAvailable, NetworkException
from sparklog.base.ids import TopicPartition
from sparklog.client.admin.group_descriptions import GroupDescription, GroupListing, GroupOffset, to_group, to_listing
from sparklog.client.cluster import Cluster
from sparklog.client.commits import Offsets, offset_messages
from sparklog.client.connection import Connection, raise_error_of
from sparklog.client.coordinator import Coordinator
from sparklog.client.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from sparklog.client.retry import retrying
from sparklog.records.batch import BatchHeader, TimestampType, iterate_headers
from sparklog.v1 import admin_pb2, groups_pb2, log_pb2

Partitions = Iterable[TopicPartition]
T = TypeVar("T")
NO_LEADER = -1


class GroupAdmin:
    """The calls of AsyncAdmin about groups; its methods of the same names document them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeout_ms = cluster.config.default_api_timeout_ms

    async def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[GroupListing]:
        request = groups_pb2.ListGroupsRequest(states=list(states), types=list(types))

        async def ask(_: int, broker: Connection) -> list[GroupListing]:
            answer = await broker.call(broker.groups.ListGroups, request, self._cluster.config.request_timeout_ms)
            raise_error_of(answer)
            return list(map(to_listing, answer.groups))

        listed = await self._until_answered(lambda: self._cluster.ask_brokers(ask))
        found = {group.group_id: group for group in listed}
        return [found[group_id] for group_id in sorted(found)]

    async def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        async def describe(group_id: str) -> GroupDescription:
            request = groups_pb2.DescribeGroupsRequest(group_ids=[group_id])
            [found] = (await self._ask(group_id, "DescribeGroups", request)).groups
            return to_group(found)

        return list(await asyncio.gather(*map(describe, group_ids)))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        requests = {group_id: groups_pb2.DeleteGroupsRequest(group_ids=[group_id]) for group_id in group_ids}
        outcomes = await asyncio.gather(
            *(self._ask(group_id, "DeleteGroups", request) for group_id, request in requests.items()),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def list_group_offsets(
        self, group_id: str, partitions: Partitions | None
    ) -> dict[TopicPartition, GroupOffset]:
        wanted = [groups_pb2.GroupPartition(topic=item.topic, partition=item.partition) for item in partitions or ()]
        if partitions is not None and not wanted:
            return {}
        request = groups_pb2.OffsetFetchRequest(group_id=group_id, partitions=wanted)
        answer = await self._ask(group_id, "OffsetFetch", request)
        found = {TopicPartition(part.topic, part.partition): part for part in answer.partitions}
        starts, ends = await self._bounds(found)
        next_read = {item: max(found[item].offset, starts[item].offset) for item in starts if found[item].offset >= 0}
        behind = {item: offset for item, offset in next_read.items() if offset < ends[item].offset}
        since_ms = await self._batch_timestamps(behind)
        gone = ListedOffset(-1, -1)
        return {
            item: GroupOffset(
                partition=item,
                offset=part.offset,
                metadata=part.metadata,
                leader_epoch=part.leader_epoch,
                commit_timestamp_ms=part.commit_timestamp_ms,
                log_start_offset=starts.get(item, gone).offset,
                high_watermark=ends.get(item, gone).offset,
                behind_since_ms=since_ms.get(item),
            )
            for item, part in sorted(found.items())
        }

    async def alter_group_offsets(self, group_id: str, offsets: Offsets) -> None:
        if offsets:
            request = groups_pb2.OffsetCommitRequest(group_id=group_id, offsets=offset_messages(offsets))
            await self._ask(group_id, "OffsetCommit", request)

    async def delete_group_offsets(self, group_id: str, partitions: Partitions) -> None:
        wanted = [groups_pb2.GroupPartition(topic=item.topic, partition=item.partition) for item in partitions]
        if wanted:
            request = groups_pb2.OffsetDeleteRequest(group_id=group_id, partitions=wanted)
            await self._ask(group_id, "OffsetDelete", request)

    async def _until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry `attempt`: a dead broker may still be listed, and a broker may still be loading its groups."""
        return await retrying(
            attempt, timeout_ms=self._timeout_ms, backoff=self._cluster.backoff, clock=self._cluster.clock
        )

    async def _ask(self, group_id: str, method: str, request: Any) -> Any:
        """Return the answer of the group's coordinator. Raises the first error in it."""
        return await Coordinator(self._cluster, group_id).ask_until(method, request, self._timeout_ms)

    async def _bounds(
        self, partitions: Partitions
    ) -> tuple[dict[TopicPartition, ListedOffset], dict[TopicPartition, ListedOffset]]:
        """Return log start offset and high watermark of each partition that has a leader."""
        for is_last in (False, True):
            existing = await self._led_partitions(partitions)
            timeout_ms = self._timeout_ms if is_last else self._timeout_ms // 4
            try:
                starts = await list_offsets(self._cluster, dict.fromkeys(existing, EARLIEST), timeout_ms)
                ends = await list_offsets(self._cluster, dict.fromkeys(existing, LATEST), timeout_ms)
                break
            except (LeaderNotAvailable, NetworkException):  # a leader has died since: look the leaders up again
                if is_last:
                    raise
        return starts, ends

    async def _led_partitions(self, partitions: Partitions) -> list[TopicPartition]:
        """Return the partitions that exist and have a leader; no broker can answer for the others."""
        answer = await self._cluster.ask_admin("ListTopics", admin_pb2.ListTopicsRequest(include_internal=True))
        counts = {topic.name: topic.partitions for topic in answer.topics}
        existing = [item for item in partitions if item.partition < counts.get(item.topic, 0)]
        return [item for item in existing if await self._is_led(item)]

    async def _is_led(self, partition: TopicPartition) -> bool:
        topic = await self._cluster.topic(partition.topic, self._timeout_ms)
        return partition.partition >= len(topic.leaders) or topic.leaders[partition.partition] != NO_LEADER

    async def _batch_timestamps(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the timestamp, from its header, of the batch that contains each offset or else of the next batch."""

        async def ask(leader: Connection, items: list[TopicPartition]) -> dict[TopicPartition, int]:
            parts = [
                log_pb2.PartitionFetch(
                    topic=item.topic, partition=item.partition, fetch_offset=offsets[item], partition_max_bytes=1
                )
                for item in items
            ]
            found: dict[TopicPartition, int] = {}
            for part in parts:  # a response always has the first batch, and others only within the limit
                request = log_pb2.FetchRequest(partitions=[part])
                answer = await leader.call(leader.log.Fetch, request, self._cluster.config.request_timeout_ms)
                headers = (header for _, header in iterate_headers(answer.partitions[0].batches))
                if header := next(headers, None):
                    found[TopicPartition(part.topic, part.partition)] = _time_of(header)
            return found

        groups = await self._cluster.by_leader(offsets, self._timeout_ms)
        answers = await asyncio.gather(*(ask(leader, items) for leader, items in groups.items()))
        return {item: time_ms for answer in answers for item, time_ms in answer.items()}


def _time_of(header: BatchHeader) -> int:
    """Return the timestamp of the batch's first record; the largest one if the header has no other."""
    is_first = header.timestamp_type == TimestampType.CREATE_TIME and header.delete_horizon_ms is None
    return header.base_timestamp if is_first else header.max_timestamp
