"""Compaction in a simulation: the real client writes tables of a few keys, and a compactor removes superseded records.

TableProducer   sends values of keys, and tombstones
Compactor       plans as the job does, and rewrites segments with the job's own kernels, through the broker's leases.
                As in clients/merges.py, the broker's process does the work of the job. The compactor compacts the
                offsets topic too, after it has made the topic's segments small
check_table     compares the final value of each key with the history. The value must be the last acknowledged one, or
                one whose write has an unknown outcome. A superseded or deleted value must never come back
check_producers compares a replica's producer state with its log, from which a start may have to rebuild the state. The
                last batch of each known producer must be there, even if it has no record any more
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from sparklog.base.clock import Clock
from sparklog.base.errors import DuplicateSequenceNumber, KafkaError, OutOfOrderSequenceNumber, SparklogError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api, Handlers
from sparklog.broker.apis import alter_configs, describe_log, replace_segments
from sparklog.broker.replacements import Replacements, StagedChecksum
from sparklog.broker.resources import ConfigResource, ResourceType
from sparklog.client.producer.delivery import RecordMetadata
from sparklog.client.producer.producer import AsyncProducer
from sparklog.log.compaction import CompactionPlan, Segments, plan_compaction
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.files import LOG
from sparklog.log.log import Log
from sparklog.records.key_map import KeyMap
from sparklog.records.rewriting import Rewriter
from sparklog.replica.manager import ReplicaManager
from sparklog.spark.compaction.keys import CompactionStrategy
from sparklog.spark.compaction.survey import SegmentSurvey
from sparklog.spark.compaction.task import survivors
from sparklog.testing.sim.checks.checker import Anomaly
from sparklog.testing.sim.checks.history import ClientOperation, History, OperationOutcome, Put
from sparklog.testing.sim.clients.client import SimClient
from sparklog.testing.sim.clients.users import DELIVERY_TIMEOUT_MS, LIFE_S, PATIENCE_MS, SimUser
from sparklog.testing.sim.clients.workload import Report, batches_of, bytes_of

TABLE = "table"
CONSUMER_OFFSETS = "__consumer_offsets"
KEYS = [f"key-{number}" for number in range(6)]
TABLE_CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1000",
    "delete.retention.ms": "500",
    "min.cleanable.dirty.ratio": "0",
}
LEASE_MS = 5_000
SEGMENT_BYTES = "4000"
"""The segment size of the offsets topic. The migration of a group to the other protocol is one batch of up to 2 kB."""
MAP_BYTES = 64 << 10


class TableProducer:
    """Real producers, one after the other, that put values, and now and then delete a key. Implements Worker.

    The next producer has another producer id. Brokers still know the former one, and their logs must have its state.
    """

    def __init__(self, user: SimUser, history: History, partitions: Sequence[TopicPartition], report: Report) -> None:
        self._user = user
        self._history = history
        self._partitions = list(partitions)
        self._report = report
        self._count = 0

    async def run(self, is_over: asyncio.Event) -> None:
        await self._user.live(self._work(is_over))

    async def _work(self, is_over: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        while not is_over.is_set():
            await self._put_some(is_over, loop.time() + self._user.chance.expovariate(1 / LIFE_S))

    async def _put_some(self, is_over: asyncio.Event, until: float) -> None:
        chance, loop = self._user.chance, asyncio.get_running_loop()
        options: dict[str, Any] = {"linger_ms": 5, "batch_size": 300, "delivery_timeout_ms": PATIENCE_MS}
        producer = AsyncProducer(**self._user.options(), **{**options, "max_block_ms": DELIVERY_TIMEOUT_MS})
        while not is_over.is_set() and loop.time() < until:
            await asyncio.sleep(chance.expovariate(4))
            for _ in range(chance.choice((1, 2, 8))):
                await self._put(producer)
        await producer.close()

    async def _put(self, producer: AsyncProducer) -> None:
        chance = self._user.chance
        topic, number = place = chance.choice(self._partitions)
        self._count += 1
        value = None if chance.random() < 0.2 else f"{self._user.name}:{self._count}"
        key = chance.choice(KEYS)
        operation = self._history.begin(self._user.name, Put(partition=place, key=key, value=value))
        try:
            told = partial(self._note_delivery, operation)
            await producer.send(topic, value, key=key, partition=number, on_delivery=told)
        except SparklogError as error:
            self._history.end(operation, OperationOutcome.FAIL, str(error))

    def _note_delivery(
        self, operation: ClientOperation, metadata: RecordMetadata | None, error: SparklogError | None
    ) -> None:
        if metadata and metadata.offset >= 0:
            self._history.end(operation, OperationOutcome.OK, metadata.offset)
        else:
            self._history.end(operation, OperationOutcome.INFO, str(error or metadata))
        if isinstance(error, OutOfOrderSequenceNumber | DuplicateSequenceNumber):
            self._report("sequence", f"{self._user.name}: {operation.action.value}: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactRequest:
    """A request to the leader to compact a partition."""

    partition: TopicPartition


async def _handle_compact(
    request: CompactRequest, *, clock: Clock, handlers: Handlers, replacements: Replacements, replicas: ReplicaManager
) -> None:
    name = request.partition
    replica = replicas.get_leader(name)
    told = await handlers[describe_log.API](describe_log.DescribeLogRequest(partitions=[name]))
    found = told.logs[name]
    if isinstance(found, KafkaError):
        raise found
    plan = plan_compaction(found, now_ms=clock.time_ms(), force=True)
    if not isinstance(plan, CompactionPlan):
        return
    survey = await asyncio.to_thread(_survey_plan, replica.log, plan, found)
    new = []
    for group in plan.groups:
        lease = await replacements.begin(name, found.leader_epoch, group, holder="compactor", lease_ms=LEASE_MS)
        data, crc = await asyncio.to_thread(survey.rewritten, group, clock.time_ms())
        size_bytes = await replacements.upload(lease.id, _pieces(data))
        staged = StagedChecksum(size_bytes=size_bytes, crc32c=crc)
        new.append(await replacements.commit(lease.id, found.leader_epoch, staged))
    await asyncio.to_thread(replica.log.replacer.set_cleaned_offset, plan.end_offset, new)


COMPACT = Api(name=replace_segments.COMMIT_REPLACE.name, handle=_handle_compact, rights=())


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


class _PlanSurvey:
    """The contents of the segments in a plan, and the records that stay."""

    def __init__(
        self, plan: CompactionPlan, description: LogDescription, read: Callable[[SegmentDescription], bytes]
    ) -> None:
        """read: returns the whole batches of a segment."""
        self._config = description.config
        self._data = data = {segment.base_offset: read(segment) for segment in plan.segments}
        strategy = CompactionStrategy.of(description.config)
        newest = KeyMap(MAP_BYTES, bytes(16))
        self._survey = SegmentSurvey(description.producer_ids)
        for segment in plan.segments:
            self._survey.take(segment.base_offset, data[segment.base_offset])
        behind = (read(each) for each in description.segments if each.base_offset >= plan.end_offset)
        self._survey.resolve(description.partition, behind, description.last_stable_offset)
        self._transactions = self._survey.transactions()
        for segment in plan.segments:
            for records in strategy.read(
                data[segment.base_offset], plan.keys_from_offset, plan.end_offset, self._transactions.aborted
            ):
                assert newest.put(records.keys, records.offsets, records.versions)
        self._kept = survivors(newest, strategy, plan.keys_from_offset)

    def rewritten(self, group: Segments, now_ms: int) -> tuple[bytes, int]:
        """Return the bytes of the segment that replaces the group, and their CRC-32C."""
        bases = [segment.base_offset for segment in group]
        rewriter = Rewriter(
            now_ms=now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            keep_empty=self._survey.last_batches,
            last_offset=self._survey.end_of(bases),
            transactions=self._transactions,
        )
        chunks = [self._data[base] for base in bases if self._data[base]]
        data = b"".join([rewriter.rewrite(chunk, self._kept(chunk)) for chunk in chunks])
        return data, rewriter.result.crc32c


def _survey_plan(log: Log, plan: CompactionPlan, description: LogDescription) -> _PlanSurvey:
    return _PlanSurvey(plan, description, lambda each: log.open_file(each.base_offset, LOG, each.identity).read())


class Compactor:
    """Has leaders compact tables and the offsets topic, several times a second. Implements Worker."""

    def __init__(self, client: SimClient, partitions: Sequence[TopicPartition]) -> None:
        self._client = client
        self._partitions = list(partitions)

    async def run(self, is_over: asyncio.Event) -> None:
        chance = self._client.chance
        is_small = False
        while not is_over.is_set():
            await asyncio.sleep(chance.expovariate(3))
            is_small = is_small or await self._make_segments_small()
            partition = chance.choice(self._partitions)
            await self._client.ask_leader(partition, COMPACT, CompactRequest(partition=partition))

    async def _make_segments_small(self) -> bool:
        """Lower the segment size of the offsets topic. Return whether it worked: the topic may not exist yet."""
        small = alter_configs.KeyChange(name="internal.segment.bytes", operation=0, value=SEGMENT_BYTES)
        change = alter_configs.ConfigChange(
            resource=ConfigResource(ResourceType.TOPIC, CONSUMER_OFFSETS), changes=[small]
        )
        request = alter_configs.IncrementalAlterConfigsRequest(resources=[change])
        try:
            answer = await self._client.ask_any(alter_configs.INCREMENTAL_ALTER_CONFIGS, request)
        except KafkaError:
            return False
        return all(result.error is None for result in answer.resources)


class TableEntry(NamedTuple):
    """A record of a table. The value of a tombstone is None."""

    offset: int
    key: str
    value: str | None


def entries_of(data: bytes) -> Iterator[TableEntry]:
    """Yield the records of some batches as entries, in order of their offsets."""
    for _, records in batches_of(data):
        for record in records:
            value = None if record.value is None else record.value.decode()
            yield TableEntry(record.offset, (record.key or b"").decode(), value)


def check_producers(log: Log) -> Iterator[Anomaly]:
    """Yield an anomaly for each producer in a replica's state whose last batch is not in the replica's log."""
    data = bytes_of(log, log.log_start_offset, log.log_end_offset)
    last = {header.producer_id: header.last_offset for header, _ in batches_of(data) if header.producer_id >= 0}
    for producer_id, state in sorted(log.producers.items()):
        if state.batches and last.get(producer_id) != state.batches[-1].last_offset:
            yield Anomaly(
                "lost producer",
                f"{log.partition}: the last batch of producer {producer_id} ends at {state.batches[-1].last_offset}; "
                f"in the log, at {last.get(producer_id)}",
            )


def check_table(history: History, partition: TopicPartition, entries: Sequence[TableEntry]) -> Iterator[Anomaly]:
    """Yield each anomaly of a table. The table must have had no unclean election."""
    said: dict[str, TableEntry] = {entry.key: entry for entry in entries}
    puts = [(operation, put) for operation, put in history.of(Put) if put.partition == partition]
    for key in KEYS:
        of_key = [(operation, put.value) for operation, put in puts if put.key == key]
        acknowledged = [(operation.result, value) for operation, value in of_key if operation.is_ok]
        last_offset, last = max(acknowledged, key=lambda each: each[0], default=(-1, None))
        late = {value for operation, value in of_key if operation.outcome is OperationOutcome.INFO}
        found = said.get(key)
        if (found.value if found else None) not in late | {last}:
            yield Anomaly("wrong table", f"{partition}: {key} ends as {found}, not as {last!r} at {last_offset}")
    sent = {put.value for operation, put in puts if operation.outcome is not OperationOutcome.FAIL}
    for entry in entries:
        if entry.value is not None and entry.value not in sent:
            yield Anomaly("phantom", f"{partition}: nobody sent {entry}, or the send was refused")
