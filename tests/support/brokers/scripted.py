"""A broker that keeps records in lists and does to requests what a test tells it: for what a real one seldom does.

It knows numbered batches again as a real one does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from sparklog.base.errors import KafkaError, MessageTooLarge
from sparklog.base.ids import TopicPartition
from sparklog.log.producers.producer_state import Changes, DuplicateAppend, ProducerBatch, ProducerStates
from sparklog.records.batch import BatchHeader, iterate_headers
from sparklog.records.records import read_records
from sparklog.v1 import admin_pb2, admin_pb2_grpc, groups_pb2_grpc, log_pb2, log_pb2_grpc, records_pb2

LOSE_ANSWER = "append, but break the call before the answer"
LOSE_REST = "append the first batch of each partition, but break the call before the answer"
LOSE_LAST = "append all batches of each partition but the last, but break the call before the answer"
REFUSE_CALL = "break the call without appending"
HANG = "append nothing and never answer"

Step = KafkaError | str | None
ALL = slice(None)
KEPT: dict[Step, slice] = {LOSE_REST: slice(1), LOSE_LAST: slice(-1)}
"""Of the batches of a partition, those that are appended."""


class ScriptedBroker(log_pb2_grpc.LogServicer, admin_pb2_grpc.AdminServicer):
    """Knows one topic, "t". Each produce request meets the next step of `script`: an error, a text above, or None."""

    def __init__(self, *, partitions: int = 2, max_batch_bytes: int = 1 << 20) -> None:
        self.partitions = partitions
        self.max_batch_bytes = max_batch_bytes
        self.script: deque[Step] = deque()
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        self.producers: dict[TopicPartition, ProducerStates] = {}
        self.requests = 0
        self.id_script: deque[Step] = deque()
        self.producer_ids = 0
        self.in_flight: dict[TopicPartition, int] = {}
        self.most_in_flight = 0
        self.answer_after = 0.0
        self.may_answer = asyncio.Event()
        """Clear: requests wait before their step is carried out."""
        self.may_answer.set()
        self.address = ""
        self.leaders: deque[int] = deque()
        """Of partition 0, in the next answers; then it is this broker."""

    async def DescribeCluster(self, request: Any, context: Any) -> Any:  # noqa: N802
        broker = admin_pb2.Broker(id=0, grpc_address=self.address)
        return admin_pb2.DescribeClusterResponse(cluster_id="c", controller_id=0, brokers=[broker])

    async def DescribeTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        parts = [admin_pb2.PartitionDescription(partition=number, leader=0) for number in range(self.partitions)]
        parts[0].leader = self.leaders.popleft() if self.leaders else 0
        return admin_pb2.DescribeTopicsResponse(topics=[admin_pb2.TopicDescription(name="t", partitions=parts)])

    async def InitProducerId(self, request: Any, context: Any) -> Any:  # noqa: N802
        step = self.id_script.popleft() if self.id_script else None
        if step == REFUSE_CALL:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "refused")
        if isinstance(step, KafkaError):
            return log_pb2.InitProducerIdResponse(error=_error(step), producer_id=-1, producer_epoch=-1)
        self.producer_ids += 1
        return log_pb2.InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)

    async def Produce(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.requests += 1
        places = [TopicPartition(part.topic, part.partition) for part in request.partitions]
        for place in places:
            self.in_flight[place] = self.in_flight.get(place, 0) + 1
        self.most_in_flight = max(self.most_in_flight, *self.in_flight.values())
        try:
            return await self._produce(request, context)
        finally:
            for place in places:
                self.in_flight[place] -= 1

    async def _produce(self, request: Any, context: Any) -> Any:
        step = self.script.popleft() if self.script else None
        if step == REFUSE_CALL:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "refused")
        if step == HANG:
            await asyncio.Event().wait()
        await self.may_answer.wait()
        await asyncio.sleep(self.answer_after)
        results = [self._append(part, step) for part in request.partitions]
        if step == LOSE_ANSWER or step in KEPT:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "lost")
        return log_pb2.ProduceResponse(partitions=results, correlation_id=request.correlation_id)

    def _append(self, part: Any, step: Step) -> Any:
        place = TopicPartition(part.topic, part.partition)
        batches = list(iterate_headers(part.batches))[KEPT.get(step, ALL)]
        if any(header.size > self.max_batch_bytes for _, header in batches):
            step = MessageTooLarge("a batch is too large")
        try:
            known = self._check(place, [header for _, header in batches])
        except KafkaError as refused:
            step = refused
        if isinstance(step, KafkaError):
            return log_pb2.PartitionProduced(topic=place.topic, partition=place.partition, error=_error(step))
        kept = self.values.setdefault(place, [])
        if isinstance(known, DuplicateAppend):
            return log_pb2.PartitionProduced(
                topic=place.topic, partition=place.partition, base_offset=known.first_offset,
                last_offset=known.last_offset, log_append_time_ms=-1,
            )  # fmt: skip
        self.producers[place].apply(known)
        base = len(kept)
        for position, _ in batches:
            kept.extend(record.value for record in read_records(part.batches, position))
        return log_pb2.PartitionProduced(
            topic=place.topic, partition=place.partition, base_offset=base, last_offset=len(kept) - 1,
            log_append_time_ms=-1,
        )  # fmt: skip

    def _check(self, place: TopicPartition, headers: list[BatchHeader]) -> Changes | DuplicateAppend:
        states = self.producers.setdefault(place, ProducerStates())
        offset, numbered = len(self.values.get(place, ())), []
        for header in headers:
            offset += header.record_count
            if header.producer_id >= 0:
                numbered.append(ProducerBatch.of(header, offset - 1, header.max_timestamp))
        return states.check(numbered, 0) if numbered else {}


def _error(error: KafkaError) -> Any:
    return records_pb2.Error(code=error.code, name=error.name, message=str(error), retriable=error.retriable)


@asynccontextmanager
async def running(broker: ScriptedBroker) -> AsyncIterator[ScriptedBroker]:
    """The broker, listening."""
    server = grpc.aio.server()
    log_pb2_grpc.add_LogServicer_to_server(broker, server)
    admin_pb2_grpc.add_AdminServicer_to_server(broker, server)
    if isinstance(broker, groups_pb2_grpc.GroupsServicer):
        groups_pb2_grpc.add_GroupsServicer_to_server(broker, server)
    broker.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield broker
    finally:
        await server.stop(None)
