"""A group's committed offsets, which its coordinator keeps.

Commits are sent one after another, in the order of the calls. A commit names the member and its generation, so that a
member that is no longer in the group cannot commit. A consumer with partitions of its own choice (`assign`) names no
member; its commits are refused while the group has members.

During a rebalance the coordinator may refuse commits with REBALANCE_IN_PROGRESS. `commit` then retries, because a
member may still commit for the partitions that it keeps. It must not commit for partitions that were revoked meanwhile
(consumer/committer.py): their new owner may have committed more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from sparklog.base.errors import (
    InconsistentTopicId,
    KafkaError,
    RebalanceInProgress,
    RetriableError,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import read_error
from sparklog.client.config import ConsumerConfig
from sparklog.client.connection import raise_error_of
from sparklog.client.coordinator import Coordinator
from sparklog.v1 import groups_pb2


class CommittedPosition(NamedTuple):
    """A committed offset, and the id of its topic; empty: not known."""

    at: OffsetAndMetadata
    topic_id: str


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read. `metadata` is any text; `leader_epoch` is -1 if not known."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """A group, and the member that has read the records (KIP-447)."""

    group_id: str
    generation: int = -1
    """The member's generation, or its epoch in a group of the newer protocol; -1: not checked."""
    member_id: str = ""
    group_instance_id: str | None = None


Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
NO_IDS: Mapping[TopicPartition, str] = {}


class CommittingMember(Protocol):
    """The member that commits."""

    member_id: str
    generation: int


class GroupOffsets:
    """Commits and fetches the offsets of one group."""

    def __init__(self, coordinator: Coordinator, config: ConsumerConfig) -> None:
        self._coordinator = coordinator
        self._config = config
        self._in_turn = asyncio.Lock()

    async def commit(
        self,
        offsets: Offsets,
        member: Callable[[], CommittingMember | None],
        *,
        topic_ids: Mapping[TopicPartition, str],
        timeout_ms: int | None,
    ) -> None:
        """Commit, and retry for `timeout_ms` (None: one attempt); raises the first error of any partition.

        topic_ids: the ids of the offsets' topics, where known
        member: called before each attempt; returns the member that commits, None for a consumer that is not a member.
            Its exceptions are raised here.
        """
        if not offsets:
            return
        clock, backoff = self._coordinator.cluster.clock, self._coordinator.cluster.backoff
        deadline_ms = clock.monotonic_ms() + (timeout_ms or 0)
        failures = 0
        async with self._in_turn:
            while True:
                try:
                    await self._attempt(offsets, topic_ids, member())
                    return
                except (UnknownTopicOrPartition, InconsistentTopicId):
                    raise
                except (RetriableError, RebalanceInProgress):
                    failures += 1
                    pause_ms = backoff.pause_ms(failures)
                    if clock.monotonic_ms() + pause_ms >= deadline_ms:
                        raise
                await asyncio.sleep(pause_ms / 1000)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedPosition | None]:
        """Return each partition's committed offset, None if there is none; raises the error of the only attempt."""
        wanted = [groups_pb2.GroupPartition(topic=item.topic, partition=item.partition) for item in partitions]
        if not wanted:
            return {}
        request = groups_pb2.OffsetFetchRequest(group_id=self._config.group_id, partitions=wanted, require_stable=True)
        answer = await self._coordinator.ask("OffsetFetch", request, self._config.request_timeout_ms)
        raise_error_of(answer)
        found: dict[TopicPartition, CommittedPosition | None] = {}
        for part in answer.partitions:
            raise_error_of(part)
            at = CommittedPosition(OffsetAndMetadata(part.offset, part.metadata, part.leader_epoch), part.topic_id)
            found[TopicPartition(part.topic, part.partition)] = at if part.offset >= 0 else None
        return found

    async def _attempt(
        self, offsets: Offsets, topic_ids: Mapping[TopicPartition, str], member: CommittingMember | None
    ) -> None:
        request = groups_pb2.OffsetCommitRequest(
            group_id=self._config.group_id, offsets=offset_messages(offsets, topic_ids)
        )
        if member is not None:
            request.generation = member.generation
            request.member_id = member.member_id
            if self._config.group_instance_id is not None:
                request.group_instance_id = self._config.group_instance_id
        answer = await self._coordinator.ask("OffsetCommit", request, self._config.request_timeout_ms)
        errors: list[KafkaError] = [error for part in answer.partitions if (error := read_error(part))]
        for error in errors:
            self._coordinator.forget_if_wrong(error)
            raise error


def with_metadata(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets, with each plain number as an OffsetAndMetadata."""
    return {
        TopicPartition(*partition): at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(at)
        for partition, at in offsets.items()
    }


def offset_messages(
    offsets: Offsets, topic_ids: Mapping[TopicPartition, str] = NO_IDS
) -> list[groups_pb2.OffsetToCommit]:
    """Return the offsets as messages of an OffsetCommit request."""
    return [
        groups_pb2.OffsetToCommit(
            topic=partition.topic,
            partition=partition.partition,
            offset=at.offset,
            leader_epoch=at.leader_epoch if at.leader_epoch >= 0 else None,
            metadata=at.metadata,
            topic_id=topic_ids.get(partition, ""),
        )
        for partition, at in with_metadata(offsets).items()
    ]
