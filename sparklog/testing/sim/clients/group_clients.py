"""The ways in which a simulated member sends requests to its coordinator. Each takes and returns the same values.

PlainGroupClient   sends the values themselves, without a listener. The network may deliver a request twice, except
                   for commits: a second copy that is late undoes newer commits, as in Apache Kafka
KafkaGroupClient   sends frames of Kafka's protocol, of old or of new versions. New versions have ids of topics, not
                   names
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from sparklog.base.errors import KafkaError, error_for
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis import group_apis, offset_commit
from sparklog.group import requests
from sparklog.server.kafka.messages import Message
from sparklog.testing.sim.clients.client import REQUEST_TIMEOUT_MS, SimClient
from sparklog.testing.sim.kafka import SimKafka

FIND_COORDINATOR = 10
_APIS: dict[type, Api[Any, Any]] = {
    requests.JoinGroup: group_apis.JOIN_GROUP,
    requests.SyncGroup: group_apis.SYNC_GROUP,
    requests.Heartbeat: group_apis.HEARTBEAT,
    requests.LeaveGroup: group_apis.LEAVE_GROUP,
    requests.ConsumerGroupHeartbeat: group_apis.CONSUMER_GROUP_HEARTBEAT,
    requests.OffsetCommit: offset_commit.API,
    requests.OffsetFetch: group_apis.OFFSET_FETCH,
}
_OLD = {8: 9, 9: 9, FIND_COORDINATOR: 3, 11: 5, 12: 3, 13: 3, 14: 3, 68: 1}
_NEW = {8: 10, 9: 10, FIND_COORDINATOR: 6, 11: 9, 12: 4, 13: 5, 14: 5, 68: 1}
"""The version of each API, by its key."""


class GroupClient(ABC):
    """A client that caches the address of its group's coordinator until `forget_coordinator`."""

    def __init__(self, name: str, chance: random.Random, back_off: Callable[[], Awaitable[None]]) -> None:
        self.name = name
        self.chance = chance
        self.back_off = back_off
        self.address: str | None = None
        """The coordinator's address; None if it is not known."""

    async def ask(self, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """Send a request of group/requests.py. Return the response, which may have an error, or raise KafkaError."""
        if self.address is None:
            self.address = await self._find(request.group_id)
        return await self._send(self.address, request, timeout_ms)

    def forget_coordinator(self) -> None:
        """Look the coordinator up again before the next request."""
        self.address = None

    @abstractmethod
    async def _find(self, group_id: str) -> str: ...

    @abstractmethod
    async def _send(self, address: str, request: Any, timeout_ms: int) -> Any: ...


class PlainGroupClient(GroupClient):
    """A client that bypasses the listeners."""

    def __init__(self, client: SimClient) -> None:
        super().__init__(client.name, client.chance, client.back_off)
        self._client = client

    async def _find(self, group_id: str) -> str:
        return await self._client.coordinator(group_id)

    async def _send(self, address: str, request: Any, timeout_ms: int) -> Any:
        may_double = not isinstance(request, requests.OffsetCommit)
        return await self._client.ask(address, _APIS[type(request)], request, timeout_ms, may_double=may_double)


class KafkaGroupClient(GroupClient):
    """A client that speaks Kafka's protocol."""

    def __init__(self, client: SimKafka) -> None:
        super().__init__(client.name, client.chance, client.back_off)
        self._client = client
        self._versions = client.chance.choice((_OLD, _NEW))
        self._assigned_ids: dict[str, UUID] = {}
        """The ids of topics in the last assignments, by name."""
        self._translations: dict[type, Callable[[Any, _Call], Awaitable[Any]]] = {
            requests.JoinGroup: self._join,
            requests.SyncGroup: self._sync,
            requests.Heartbeat: self._heartbeat,
            requests.LeaveGroup: self._leave,
            requests.ConsumerGroupHeartbeat: self._consumer_heartbeat,
            requests.OffsetCommit: self._commit,
            requests.OffsetFetch: self._fetch,
        }

    async def _find(self, group_id: str) -> str:
        version = self._versions[FIND_COORDINATOR]
        found = await self._client.ask(
            self._client.anyone(), FIND_COORDINATOR, version, key=group_id, coordinator_keys=[group_id], key_type=0
        )
        place = found.coordinators[0] if version >= 4 else found
        if error := _error(place.error_code):
            raise error
        return f"{place.host}:{place.port}"

    async def _send(self, address: str, request: Any, timeout_ms: int) -> Any:
        key = _APIS[type(request)].key
        assert key is not None

        async def call(**fields: Any) -> Message:
            return await self._client.ask(address, key, self._versions[key], timeout_ms=timeout_ms, **fields)

        return await self._translations[type(request)](request, call)

    async def _join(self, request: requests.JoinGroup, call: _Call) -> requests.JoinGroupResponse:
        found = await call(
            group_id=request.group_id, member_id=request.member_id, group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type, session_timeout=request.session_timeout_ms,
            rebalance_timeout=request.rebalance_timeout_ms,
            protocols=[{"name": name, "metadata": metadata} for name, metadata in request.protocols],
        )  # fmt: skip
        members = [
            requests.JoinedMember(
                member_id=each.member_id, group_instance_id=each.group_instance_id, metadata=each.metadata
            )
            for each in found.members
        ]
        return requests.JoinGroupResponse(
            error=_error(found.error_code), generation=found.generation_id, protocol=found.protocol_name,
            leader=found.leader, skip_assignment=getattr(found, "skip_assignment", False), member_id=found.member_id,
            members=members,
        )  # fmt: skip

    async def _sync(self, request: requests.SyncGroup, call: _Call) -> requests.SyncGroupResponse:
        found = await call(
            group_id=request.group_id, generation_id=request.generation, member_id=request.member_id,
            group_instance_id=request.group_instance_id, protocol_type=request.protocol_type,
            protocol_name=request.protocol,
            assignments=[{"member_id": name, "assignment": each} for name, each in request.assignments.items()],
        )  # fmt: skip
        return requests.SyncGroupResponse(error=_error(found.error_code), assignment=found.assignment)

    async def _heartbeat(self, request: requests.Heartbeat, call: _Call) -> requests.HeartbeatResponse:
        found = await call(
            group_id=request.group_id, generation_id=request.generation, member_id=request.member_id,
            group_instance_id=request.group_instance_id,
        )  # fmt: skip
        return requests.HeartbeatResponse(error=_error(found.error_code))

    async def _leave(self, request: requests.LeaveGroup, call: _Call) -> requests.LeaveGroupResponse:
        members = [
            {"member_id": each.member_id, "group_instance_id": each.group_instance_id, "reason": None}
            for each in request.members
        ]
        found = await call(group_id=request.group_id, members=members)
        return requests.LeaveGroupResponse(error=_error(found.error_code))

    async def _consumer_heartbeat(
        self, request: requests.ConsumerGroupHeartbeat, call: _Call
    ) -> requests.ConsumerGroupHeartbeatResponse:
        owned = [
            {"topic_id": self._assigned_ids[topic], "partitions": [name.partition for name in names]}
            for topic, names in _by_topic(request.owned_partitions or ())
        ]
        found = await call(
            group_id=request.group_id, member_id=request.member_id, member_epoch=request.member_epoch,
            instance_id=request.group_instance_id, rack_id=None, rebalance_timeout=request.rebalance_timeout_ms,
            subscribed_topic_names=request.subscribed_topic_names, server_assignor=None,
            subscribed_topic_regex=request.subscribed_topic_regex, topic_partitions=owned,
        )  # fmt: skip
        assignment = None if found.assignment is None else await self._named(found.assignment.topic_partitions)
        return requests.ConsumerGroupHeartbeatResponse(
            error=_error(found.error_code), member_id=found.member_id, member_epoch=found.member_epoch,
            assignment=assignment,
        )  # fmt: skip

    async def _named(self, topics: Sequence[Any]) -> list[TopicPartition]:
        """Return the partitions by topic name, without those of topics that no broker names: they may be deleted."""
        named = []
        for topic in topics:
            if name := await self._client.topic_name(topic.topic_id):
                self._assigned_ids[name] = topic.topic_id
                named += [TopicPartition(name, number) for number in topic.partitions]
        return sorted(named)

    async def _commit(self, request: requests.OffsetCommit, call: _Call) -> requests.OffsetCommitResponse:
        by_partition = {each.partition: each.offset for each in request.offsets}
        topics = [
            {
                "name": topic,
                "topic_id": await self._client.topic_id(topic),
                "partitions": [
                    {"partition_index": name.partition, "committed_offset": by_partition[name],
                     "committed_leader_epoch": -1, "committed_metadata": None}
                    for name in names
                ],
            }
            for topic, names in _by_topic(by_partition)
        ]  # fmt: skip
        found = await call(
            group_id=request.group_id, generation_id_or_member_epoch=request.generation_or_epoch,
            member_id=request.member_id, group_instance_id=request.group_instance_id, topics=topics,
        )  # fmt: skip
        codes = [part.error_code for topic in found.topics for part in topic.partitions]
        return requests.OffsetCommitResponse(
            errors=dict(zip(sorted(by_partition), map(_error, codes), strict=True)),
        )

    async def _fetch(self, request: requests.OffsetFetch, call: _Call) -> requests.OffsetFetchResponse:
        asked = sorted(request.partitions or ())
        topics = [
            {
                "name": topic,
                "topic_id": await self._client.topic_id(topic),
                "partition_indexes": [name.partition for name in names],
            }
            for topic, names in _by_topic(asked)
        ]
        group = {
            "group_id": request.group_id, "member_id": request.member_id, "member_epoch": request.member_epoch,
            "topics": topics,
        }  # fmt: skip
        found = (await call(groups=[group], require_stable=False)).groups[0]
        parts = [part for topic in found.topics for part in topic.partitions]
        return requests.OffsetFetchResponse(
            error=_error(found.error_code),
            offsets=[
                requests.CommittedOffset(partition=name, offset=part.committed_offset, error=_error(part.error_code))
                for name, part in zip(asked, parts, strict=False)
            ],
        )


_Call = Callable[..., Awaitable[Message]]


def _error(code: Any) -> KafkaError | None:
    return error_for(int(code), "") if code else None


def _by_topic(names: Iterator[TopicPartition] | Sequence[TopicPartition] | dict[TopicPartition, int]) -> Any:
    return groupby(sorted(names), lambda name: name.topic)
