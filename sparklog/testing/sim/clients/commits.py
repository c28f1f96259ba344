"""A client of Kafka's protocol that commits offsets of topics, and deletes and creates these topics again.

Its requests name topics, like those of all clients before OffsetCommit 10, so the coordinator has to know to which
topic a commit belongs. Each commit has the topic's id and a number in its metadata. The client commits only while all
brokers agree on the topic's id, because otherwise the topic of the commit is unknown.

Some topics are replaced only once, each by a successor of the same name. The client commits for the successor at once,
while the coordinator may still be deleting the commits of the old topic, and stops after the first acknowledged commit.

Once the faults are over, the group must have no commit of a deleted topic, and the last acknowledged commit, or a later
one, of each topic that exists. A commit that was not answered may also be there: it may have arrived after later ones,
over a connection that the client has given up. A topic whose deletion was acknowledged must not have come back, unless
a request to create it was not answered: that may have arrived after the deletion.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import UUID

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.testing.sim.checks.checker import Anomaly
from sparklog.testing.sim.cluster import SimCluster
from sparklog.testing.sim.kafka import SimKafka, raise_for

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS = 8, 9, 10, 19, 20
GROUP = "by-name"
PARTITIONS = [TopicPartition("named1", 0), TopicPartition("named2", 0)]
REPLACED = [TopicPartition(f"replaced{number}", 0) for number in range(4)]
TRIES = 50
GIVE_UP_S = 4.0
TIMEOUT_MS = 5_000


class NamedOffsetCommitter:
    """Commits offsets, and checks the commits that are left."""

    def __init__(
        self, client: SimKafka, cluster: SimCluster, *, replication_factor: int, replaces: bool = False
    ) -> None:
        """replaces: whether there are topics that are replaced once."""
        self._client = client
        self._cluster = cluster
        self._factor = replication_factor
        self._replaced = REPLACED if replaces else []
        self._sent = 0
        self._unanswered: set[int] = set()
        self._acknowledged: dict[TopicPartition, tuple[UUID, int]] = {}
        """Each partition's last acknowledged commit: the topic's id and the commit's number."""
        self._deleted: set[str] = set()
        """The topics whose deletion was acknowledged, and whose creation was not requested since."""
        self._may_be_created: set[str] = set()
        """The topics that a request without an answer may create at any time."""

    async def run(self, is_over: asyncio.Event) -> None:
        """Commit several times a second until `is_over` is set. Create missing topics, and sometimes delete one."""
        chance = self._client.chance
        replacing = [asyncio.create_task(self._replace(partition, is_over)) for partition in self._replaced]
        while not is_over.is_set():
            await asyncio.sleep(chance.expovariate(4))
            partition = chance.choice(PARTITIONS)
            topic_id = self._agreed_id(partition)
            if chance.random() < 0.2:
                await self._delete(partition.topic)
            elif topic_id is not None:
                await self._commit(partition, topic_id)
            elif chance.random() < 0.5:
                await self._create(partition.topic)
        await asyncio.gather(*replacing)

    async def _replace(self, partition: TopicPartition, is_over: asyncio.Event) -> None:
        """Create a topic and commit for it; delete it after some seconds; create it again, and commit for it."""
        before = await self._commit_for_new(partition)
        await asyncio.sleep(self._client.chance.uniform(0, 8))
        if before is not None and not is_over.is_set():
            await self._delete(partition.topic)
            await self._commit_for_new(partition)

    async def _commit_for_new(self, partition: TopicPartition) -> UUID | None:
        """Create a topic and commit for it until that is acknowledged. Return the topic's id, or None if it is not."""
        loop, before = asyncio.get_running_loop(), self._acknowledged.get(partition, (None, 0))[0]
        until = loop.time() + GIVE_UP_S
        await self._create(partition.topic)
        while loop.time() < until:
            topic_id = self._agreed_id(partition)
            if topic_id is not None and topic_id != before:
                await self._commit(partition, topic_id)
                if self._acknowledged.get(partition, (None, 0))[0] == topic_id:
                    return topic_id
            await asyncio.sleep(0.05)
        return None

    async def check(self) -> AsyncIterator[Anomaly]:
        """Yield each anomaly of the group's committed offsets. The cluster has settled."""
        existing = set(self._cluster.tree.names("/brokers/topics"))
        for name in sorted(self._deleted & existing - self._may_be_created):
            yield Anomaly("deleted topic", f"{name} was deleted, and has come back")
        for partition in (*PARTITIONS, *self._replaced):
            if (topic_id := self._agreed_id(partition)) is not None:
                found = await self._find(partition)
                if found is None:
                    yield Anomaly("liveness", f"the committed offset of {GROUP} for {partition} cannot be read")
                    continue
                text, _, number = found.partition("/")
                if found and text != str(topic_id):
                    yield Anomaly("stale commit", f"{partition} of {topic_id} has a commit of {text}")
                known_id, last = self._acknowledged.get(partition, (None, 0))
                there = int(number or 0)
                if known_id == topic_id and there < last and there not in self._unanswered:
                    yield Anomaly("vanished commit", f"{partition}: commit {last} was acknowledged; there is {found!r}")

    def _agreed_id(self, partition: TopicPartition) -> UUID | None:
        """Return the id of the partition's topic, if all brokers are up and know the same one."""
        ids = set()
        for node in self._cluster.nodes.values():
            topic = node.broker.services.metadata.find(partition.topic) if node.broker and node.is_up else None
            ids.add(topic.topic_id if topic and partition.partition < len(topic.partitions) else None)
        return ids.pop() if len(ids) == 1 else None

    async def _create(self, name: str) -> None:
        topic = {
            "name": name, "num_partitions": 1, "replication_factor": self._factor, "assignments": [], "configs": [],
        }  # fmt: skip
        self._deleted.discard(name)
        try:
            await self._client.ask(
                self._anyone(), CREATE_TOPICS, 5, topics=[topic], timeout=TIMEOUT_MS, validate_only=False
            )
        except KafkaError:
            self._may_be_created.add(name)

    async def _delete(self, name: str) -> None:
        with suppress(KafkaError):
            answer = await self._client.ask(self._anyone(), DELETE_TOPICS, 5, topic_names=[name], timeout=TIMEOUT_MS)
            raise_for(answer.responses[0].error_code)
            self._deleted.add(name)

    async def _commit(self, partition: TopicPartition, topic_id: UUID) -> None:
        self._sent += 1
        number = self._sent
        part = {
            "partition_index": partition.partition, "committed_offset": number, "committed_leader_epoch": -1,
            "committed_metadata": f"{topic_id}/{number}",
        }  # fmt: skip
        try:
            answer = await self._client.ask(
                await self._coordinator(), OFFSET_COMMIT, 8, group_id=GROUP, generation_id_or_member_epoch=-1,
                member_id="", group_instance_id=None, topics=[{"name": partition.topic, "partitions": [part]}],
            )  # fmt: skip
            raise_for(answer.topics[0].partitions[0].error_code)
        except KafkaError:
            self._unanswered.add(number)
            return
        if self._agreed_id(partition) == topic_id:
            self._acknowledged[partition] = topic_id, number

    async def _find(self, partition: TopicPartition) -> str | None:
        """Return the metadata of the group's commit; empty if it has none, None if the coordinator does not answer."""
        topics = [{"name": partition.topic, "partition_indexes": [partition.partition]}]
        for _ in range(TRIES):
            try:
                answer = await self._client.ask(
                    await self._coordinator(), OFFSET_FETCH, 7, group_id=GROUP, topics=topics, require_stable=False
                )
                raise_for(answer.error_code)
                found = answer.topics[0].partitions[0]
                raise_for(found.error_code)
            except KafkaError:
                await asyncio.sleep(0.1)
            else:
                return str(found.metadata or "")
        return None

    async def _coordinator(self) -> str:
        """Return the coordinator's address. Raises KafkaError."""
        found = await self._client.ask(self._anyone(), FIND_COORDINATOR, 3, key=GROUP, key_type=0)
        raise_for(found.error_code)
        return f"{found.host}:{found.port}"

    def _anyone(self) -> str:
        return self._client.chance.choice([node.name for node in self._cluster.nodes.values()])
