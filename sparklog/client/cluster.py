"""A client's metadata of the cluster: its brokers, and the leader of each partition.

Any broker can provide the metadata. The client asks the broker that answered last, then the bootstrap brokers, then
all known ones. The metadata is kept for `metadata_max_age_ms`; a topic's metadata is renewed earlier if an error shows
that it is out of date. If one partition has lost its leader, the leaders of the others stay in use meanwhile. Used on
one event loop only.

A broker that is cut off from the others may report an old state for a long time. So brokers whose metadata was wrong
are asked after the others, the latest such broker last; brokers that did not answer are asked after all others. A
leader with an older epoch than a known one is rejected: to a consumer, the records that it lacks would look like an
offset out of range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from sparklog.base.clock import Clock
from sparklog.base.errors import (
    BrokerNotAvailable,
    LeaderNotAvailable,
    NetworkException,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition, check_topic
from sparklog.base.message_mapping import read_error
from sparklog.client.config import ClientConfig
from sparklog.client.connection import Connection, Connections, OpenChannel, open_channel
from sparklog.client.retry import Backoff, retrying
from sparklog.v1 import admin_pb2

UNKNOWN_TOPIC_GRACE_MS = 1_000
"""How long to ask again before a topic counts as unknown: not every broker knows a new topic at once."""

LEARNING_TIMEOUT_MS = 5_000
"""How long to wait for one broker's metadata before another broker is asked."""
LONG_AGO_MS = float("-inf")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLeaders:
    """The leader of each partition of a topic, by broker id, at `learnt_ms` (monotonic); -1: none."""

    name: str
    leaders: tuple[int, ...]
    learnt_ms: float
    topic_id: str = ""
    epochs: tuple[int, ...] = ()
    """Leader epoch of each partition; empty if not known."""
    told_by: tuple[str, ...] = ()
    """Address of the broker that reported this; empty if not known."""

    def leader_of(self, partition: int) -> int:
        """Return the leader's broker id, -1 if none; raises UnknownTopicOrPartition if there is no such partition."""
        if not 0 <= partition < len(self.leaders):
            raise UnknownTopicOrPartition(
                f"topic {self.name!r} has partitions 0 to {len(self.leaders) - 1}, not {partition}"
            )
        return self.leaders[partition]


class Cluster:
    """The brokers of a cluster, and the connections to them by partition, by broker id or to any broker.

    With `create_topics`, looking up a topic that does not exist creates it, if the brokers allow that
    (auto.create.topics.enable).
    """

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        random: Random,
        *,
        open_channel: OpenChannel = open_channel,
        create_topics: bool = False,
    ) -> None:
        self.config = config
        self._create_topics = create_topics
        self.clock = clock
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self.connections = Connections(config, open_channel)
        self._brokers: dict[int, str] = {}
        self._brokers_outdated = True
        self._topics: dict[str, TopicLeaders] = {}
        self._learning: dict[str, asyncio.Task[TopicLeaders]] = {}
        self._answered_last: tuple[str, ...] = ()
        self._doubted: dict[str, None] = {}  # latest doubt last
        self._silent: set[str] = set()
        self._newest: dict[str, TopicLeaders] = {}

    async def any_broker(self, call: Callable[[Connection], Awaitable[T]]) -> T:
        """Return the result of `call` for the first broker that answers; raises the last error if none does."""
        failure: NetworkException | RequestTimedOut | None = None
        for address in self._addresses_to_ask():
            try:
                answer = await call(self.connections.get(address))
            except (NetworkException, RequestTimedOut) as silent:
                failure = silent
                self._silent.add(address)
            else:
                self._answered_last = (address,)
                self._silent.discard(address)
                return answer
        assert failure is not None  # bootstrap_servers is never empty
        raise failure

    def _addresses_to_ask(self) -> list[str]:
        """Return all known addresses, first those of brokers that probably answer and have correct metadata."""
        known = dict.fromkeys((*self._answered_last, *self.config.bootstrap_servers, *self._brokers.values()))
        self._silent &= known.keys()
        self._doubted = {address: None for address in self._doubted if address in known}
        doubts = {address: number for number, address in enumerate(self._doubted)}
        return sorted(known, key=lambda address: (address in self._silent, doubts.get(address, -1)))

    def doubt(self, told_by: tuple[str, ...] | None = None) -> None:
        """Ask other brokers first: the metadata of `told_by` (None: of the broker that answered last) was wrong.

        Silent brokers are asked again too: otherwise a broker that answers with wrong metadata would stay the only one
        asked.
        """
        self._silent.clear()
        for address in self._answered_last if told_by is None else told_by:
            self._doubted.pop(address, None)
            self._doubted[address] = None

    async def ask_admin(
        self, method: str, request: Any, timeout_ms: int | None = None, *, per_broker_ms: int | None = None
    ) -> Any:
        """Return the answer of any broker's Admin service; retry for `timeout_ms` while errors are retriable."""
        limit_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        per_request_ms = min(self.config.request_timeout_ms, per_broker_ms or self.config.request_timeout_ms)

        def attempt() -> Awaitable[Any]:
            return self.any_broker(lambda broker: broker.call(getattr(broker.admin, method), request, per_request_ms))

        return await retrying(attempt, timeout_ms=limit_ms, backoff=self.backoff, clock=self.clock)

    def known(self, topic: str) -> TopicLeaders | None:
        """Return the cached metadata of `topic`, however old; None if there is none."""
        return self._topics.get(topic)

    def known_topic_id(self, topic: str) -> str:
        """Return the cached id of the topic; empty if not known."""
        metadata = self._topics.get(topic)
        return metadata.topic_id if metadata else ""

    async def topic(self, name: str, timeout_ms: int) -> TopicLeaders:
        """Return the topic's metadata; request it if it is not known or too old.

        Raises UnknownTopicOrPartition if the brokers still do not know the topic after a second, InvalidTopic for a
        name that no topic can have, NetworkException or RequestTimedOut if no broker answers within `timeout_ms`.
        """
        found = self._topics.get(name)
        if found and not self.is_old(name):
            return found
        check_topic(name)
        task = self._learning.get(name)
        if task is None:
            task = self._learning[name] = asyncio.create_task(self._learn_topic(name, timeout_ms))
            task.add_done_callback(lambda done: self._store_learned(name, done))
        return await asyncio.shield(task)

    def outdated(self, topic: str) -> None:
        """Drop the metadata of `topic`, which an answer has shown to be wrong; its next use requests it again."""
        if found := self._topics.pop(topic, None):
            self.doubt(found.told_by)
        self._brokers_outdated = True

    def lost_leader(self, partition: TopicPartition) -> None:
        """Drop the known leader of `partition`, which was wrong or missing; its next use looks the leader up."""
        topic = self._topics.get(partition.topic)
        if topic is not None:
            self.doubt(topic.told_by)
            leaders = [-1 if number == partition.partition else leader for number, leader in enumerate(topic.leaders)]
            self._topics[partition.topic] = replace(topic, leaders=tuple(leaders), learnt_ms=LONG_AGO_MS)
        self._brokers_outdated = True

    def lost_broker(self) -> None:
        """Look up the brokers before the next use of a broker id, as one could not be reached."""
        self._brokers_outdated = True

    async def leader(self, partition: TopicPartition, timeout_ms: int) -> Connection:
        """Return the connection to the partition's leader.

        Raises LeaderNotAvailable or UnknownTopicOrPartition if there is none.
        """
        topic = await self.topic(partition.topic, timeout_ms)
        if partition.partition >= len(topic.leaders):
            self._topics.pop(partition.topic, None)
            topic = await self.topic(partition.topic, timeout_ms)  # it may have grown since it was learnt
        try:
            return self.connection_to_leader(topic, partition)
        except (LeaderNotAvailable, UnknownTopicOrPartition):
            self.outdated(partition.topic)
            raise

    def connection_to_leader(self, topic: TopicLeaders, partition: TopicPartition) -> Connection:
        """Return the connection to the leader according to `topic`; raises as `leader` does."""
        address = self._brokers.get(topic.leader_of(partition.partition))
        if address is None:
            raise LeaderNotAvailable(f"partition {partition} has no leader at the moment")
        return self.connections.get(address)

    def known_leader(self, partition: TopicPartition) -> Connection | None:
        """Return the connection to the known leader of the partition; None if there is none."""
        topic = self._topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.leaders):
            return None
        address = self._brokers.get(topic.leaders[partition.partition])
        return self.connections.get(address) if address else None

    def known_epoch(self, partition: TopicPartition) -> int | None:
        """Return the epoch of the known leader; None if there is none."""
        topic = self._topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.epochs):
            return None
        return topic.epochs[partition.partition]

    def saw_epoch(self, partition: TopicPartition, epoch: int, topic_id: str) -> None:
        """Note the leader epoch of a record or commit; drop a known leader with an older epoch."""
        topic = self._topics.get(partition.topic)
        known = self.known_epoch(partition)
        if topic is None or topic.topic_id != topic_id or known is None or known >= epoch:
            return
        epochs = [epoch if number == partition.partition else each for number, each in enumerate(topic.epochs)]
        self._topics[topic.name] = self._newest[topic.name] = replace(topic, epochs=tuple(epochs))
        self.lost_leader(partition)

    def known_broker(self, broker_id: int) -> Connection | None:
        """Return the connection to a broker; None if its address is not known."""
        address = self._brokers.get(broker_id)
        return self.connections.get(address) if address else None

    def is_old(self, topic: str) -> bool:
        """Return whether the topic's metadata is missing or older than metadata_max_age_ms."""
        found = self._topics.get(topic)
        return not found or self.clock.monotonic_ms() - found.learnt_ms >= self.config.metadata_max_age_ms

    async def by_leader(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[Connection, list[TopicPartition]]:
        """Return the partitions by the connection to their leader; raises as `leader` does."""
        groups: dict[Connection, list[TopicPartition]] = {}
        for partition in partitions:
            groups.setdefault(await self.leader(partition, timeout_ms), []).append(partition)
        return groups

    async def brokers(self) -> dict[int, Connection]:
        """Request the list of the cluster's brokers, and return their connections by id."""
        await self._learn_brokers(self.config.default_api_timeout_ms)
        return {broker: self.connections.get(address) for broker, address in self._brokers.items()}

    async def ask_brokers(self, ask: Callable[[int, Connection], Awaitable[Iterable[T]]]) -> list[T]:
        """Ask all brokers at once, and return the elements of their answers together; one attempt."""
        brokers = await self.brokers()
        answers = await asyncio.gather(*(ask(broker_id, broker) for broker_id, broker in brokers.items()))
        return [found for answer in answers for found in answer]

    async def broker(self, broker_id: int) -> Connection:
        """Return the connection to a broker by its id; raises BrokerNotAvailable if the cluster has none."""
        if broker_id not in self._brokers or self._brokers_outdated:
            await self._learn_brokers(self.config.default_api_timeout_ms)
        address = self._brokers.get(broker_id)
        if address is None:
            raise BrokerNotAvailable(f"the cluster has no broker {broker_id} at the moment")
        return self.connections.get(address)

    async def close(self) -> None:
        """Close all connections, and cancel requests for metadata."""
        for task in self._learning.values():
            task.cancel()
        await self.connections.close()

    async def _learn_brokers(self, timeout_ms: int) -> None:
        request = admin_pb2.DescribeClusterRequest()
        answer = await self.ask_admin("DescribeCluster", request, timeout_ms, per_broker_ms=LEARNING_TIMEOUT_MS)
        self._brokers = {broker.id: broker.grpc_address for broker in answer.brokers}
        self._brokers_outdated = False

    async def _learn_topic(self, name: str, timeout_ms: int) -> TopicLeaders:
        grace_ms = min(UNKNOWN_TOPIC_GRACE_MS, timeout_ms)

        async def attempt() -> Any:
            request = admin_pb2.DescribeTopicsRequest(names=[name], allow_auto_topic_creation=self._create_topics)
            answer = await self.ask_admin("DescribeTopics", request, timeout_ms, per_broker_ms=LEARNING_TIMEOUT_MS)
            [description] = answer.topics
            error = read_error(description)
            if isinstance(error, UnknownTopicOrPartition):  # another broker may know it
                self.doubt()
                if self._brokers_outdated:
                    await self._learn_brokers(timeout_ms)
            if error:
                raise error
            return description

        try:
            found = await retrying(attempt, timeout_ms=grace_ms, backoff=self.backoff, clock=self.clock)
        except UnknownTopicOrPartition:
            self._newest.pop(name, None)
            raise UnknownTopicOrPartition(f"there is no topic {name!r}") from None
        parts = sorted(found.partitions, key=lambda item: item.partition)
        metadata = self._without_outdated_leaders(
            TopicLeaders(
                name=name,
                leaders=tuple(item.leader for item in parts),
                learnt_ms=self.clock.monotonic_ms(),
                topic_id=found.topic_id,
                epochs=tuple(item.leader_epoch for item in parts),
                told_by=self._answered_last,
            )
        )
        if self._brokers_outdated or not set(metadata.leaders) <= self._brokers.keys() | {-1}:
            await self._learn_brokers(timeout_ms)
        return metadata

    def _without_outdated_leaders(self, told: TopicLeaders) -> TopicLeaders:
        """Return `told` without the leaders whose epoch is older than the newest known one."""
        newest = self._newest.get(told.name)
        if newest is not None and told.topic_id and newest.topic_id == told.topic_id:
            # A topic never loses partitions. A broker that knows fewer of them is behind.
            missing = (-1,) * (len(newest.epochs) - len(told.epochs))
            told = replace(told, leaders=told.leaders + missing, epochs=told.epochs + missing)
            known = (*newest.epochs, *(-1 for _ in told.epochs))
            if any(epoch < before for epoch, before in zip(told.epochs, known, strict=False)):
                self.doubt(told.told_by)
            pairs = list(zip(told.leaders, told.epochs, known, strict=False))
            told = replace(
                told,
                leaders=tuple(leader if epoch >= before else -1 for leader, epoch, before in pairs),
                epochs=tuple(max(epoch, before) for _, epoch, before in pairs),
            )
        self._newest[told.name] = told
        return told

    def _store_learned(self, name: str, task: asyncio.Task[TopicLeaders]) -> None:
        self._learning.pop(name, None)
        if not task.cancelled() and task.exception() is None:  # waiting callers get a failure from the task
            self._topics[name] = task.result()
