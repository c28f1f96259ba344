"""Calls between brokers over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import grpc
import pytest
from msgspec import structs

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    ElectionNotNeeded,
    NetworkException,
    RequestTimedOut,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from sparklog.cluster.messages import TopicState, UpdateMetadata, UpdateMetadataResponse
from sparklog.cluster.model import BrokerInfo, PartitionInfo
from sparklog.replica.messages import FetchedPartition, FetchPartition, ReplicaFetch, ReplicaFetchResponse, StopReplica
from sparklog.server.grpc.peers import GrpcPeers
from sparklog.server.grpc.replication import ReplicationServicer
from sparklog.server.security import ListenerSecurity
from support.brokers.most_calls import most_calls_of
from support.patience import PATIENCE_MS, PATIENCE_S

FETCH = ReplicaFetch(
    replica_id=2, broker_epoch=9, max_wait_ms=0, min_bytes=1, max_bytes=1, session_id=0, session_epoch=-1, partitions=()
)
ORDER = UpdateMetadata(controller_id=1, controller_epoch=1, broker_epoch=1, brokers=())


ASKED = (ReplicaFetch, UpdateMetadata, ElectLeadersRequest)


class Callee:
    """The parts of a broker that the service needs, with the responses `answers`."""

    def __init__(self) -> None:
        self.answers: dict[type, Callable[[Any], Awaitable[Any]]] = {}
        self.grpc = grpc.aio.server()
        apis = {kind: Api(name=kind.__name__, handle=self._handle, rights=()) for kind in ASKED}
        self.service = ReplicationServicer(self, apis)  # type: ignore[arg-type]
        self.grpc.add_generic_rpc_handlers((self.service.handler(),))
        self.port = self.grpc.add_insecure_port("127.0.0.1:0")
        self.clients = self
        self.tracing = None

    async def serve(self, api: Api[Any, Any], request: Any) -> Any:
        return await api.bind(None)(request)

    async def access(self, _: Any) -> None:
        """Everything is allowed."""

    async def _handle(self, request: Any) -> Any:
        return await self.answers[type(request)](request)

    @property
    def info(self) -> BrokerInfo:
        return BrokerInfo(broker_id=1, grpc_address=f"127.0.0.1:{self.port}", listeners={}, rack="", version="")


@pytest.fixture
async def callee() -> AsyncIterator[Callee]:
    callee = Callee()
    await callee.grpc.start()
    yield callee
    await callee.grpc.stop(None)


@pytest.fixture
async def peers() -> AsyncIterator[GrpcPeers]:
    peers = GrpcPeers(ListenerSecurity(BrokerConfig()))
    yield peers
    await peers.close()


async def test_a_request_reaches_the_other_broker_and_its_answer_comes_back(callee: Callee, peers: GrpcPeers) -> None:
    seen: list[Any] = []
    answer = ReplicaFetchResponse(
        session_id=3, partitions=(FetchedPartition(name=TopicPartition("t", 0), records=b"x" * 100),)
    )

    async def serve(request: Any) -> Any:
        seen.append(request)
        return answer

    callee.answers[ReplicaFetch] = serve

    assert await peers.call(callee.info, FETCH, timeout_ms=PATIENCE_MS) == answer
    assert seen == [FETCH]


async def test_a_refusal_is_raised_as_the_error_that_it_is(callee: Callee, peers: GrpcPeers) -> None:
    async def refuse(_: Any) -> Any:
        raise StaleBrokerEpoch("broker epoch 1 is not mine")

    callee.answers[UpdateMetadata] = refuse

    with pytest.raises(StaleBrokerEpoch, match=r"broker 1 at .*: broker epoch 1 is not mine"):
        await peers.call(callee.info, ORDER, timeout_ms=PATIENCE_MS)


async def test_a_broker_that_is_not_there_is_said_to_be_away_and_reached_once_it_is_there(peers: GrpcPeers) -> None:
    callee = Callee()
    callee.answers[UpdateMetadata] = updated
    gone = BrokerInfo(broker_id=1, grpc_address="127.0.0.1:1", listeners={}, rack="", version="")

    with pytest.raises(NetworkException):
        await peers.call(gone, ORDER, timeout_ms=PATIENCE_MS)
    await callee.grpc.start()
    assert await peers.call(callee.info, ORDER, timeout_ms=PATIENCE_MS) == UpdateMetadataResponse()
    await callee.grpc.stop(None)


async def updated(_: Any) -> UpdateMetadataResponse:
    return UpdateMetadataResponse()


@pytest.mark.slow
async def test_others_have_their_turn_while_brokers_tell_each_other_of_many_partitions(
    callee: Callee, peers: GrpcPeers
) -> None:
    """Neither the sender nor the receiver blocks its event loop."""
    count = 10_000
    part = PartitionInfo(leader=1, leader_epoch=1, in_sync_replicas=(1,), replicas=(1,), partition_epoch=1)
    topic = TopicState(name="t", topic_id=UUID(int=2), partitions=(part,) * count, overrides={})
    order = structs.replace(ORDER, topics=(topic,))
    wanted = FetchPartition(
        name=TopicPartition("t", 0), topic_id=UUID(int=2), fetch_offset=0, max_bytes=1, current_leader_epoch=1,
        last_fetched_epoch=None, log_start_offset=0,
    )  # fmt: skip
    fetch = structs.replace(FETCH, partitions=(wanted,) * count)
    seen: list[Any] = []

    async def carry_out(request: Any) -> Any:
        seen.append(request)
        return answers[type(request)]

    names = [TopicPartition("t", number) for number in range(count)]
    election = ElectLeadersRequest(partitions=names, is_for_controller=True)
    error = ElectionNotNeeded("no")
    answers = {
        UpdateMetadata: UpdateMetadataResponse(),
        ReplicaFetch: ReplicaFetchResponse(session_id=1, partitions=()),
        ElectLeadersRequest: ElectLeadersResponse(errors=dict.fromkeys(names, error)),
    }
    callee.answers |= dict.fromkeys(answers, carry_out)
    with most_calls_of(asyncio.get_running_loop()) as most:
        for request in (order, fetch, election):
            await peers.call(callee.info, request, timeout_ms=PATIENCE_MS)
        await asyncio.sleep(0)  # the end of this turn, which is counted then
    assert seen == [order, fetch, election]
    assert most.calls < count, most


async def run_out_of_time(peers: GrpcPeers, callee: Callee, request: Any, begun: asyncio.Event) -> None:
    """Repeat a call until its time-out comes after the start of the answer; an earlier one may precede the request."""
    timeout_ms = 20
    while not begun.is_set():
        with pytest.raises(RequestTimedOut):
            await peers.call(callee.info, request, timeout_ms=timeout_ms)
        timeout_ms *= 2


async def test_a_broker_that_hangs_costs_the_time_that_was_given(callee: Callee, peers: GrpcPeers) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hang(_: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    callee.answers[ReplicaFetch] = hang

    await run_out_of_time(peers, callee, FETCH, begun)
    await asyncio.wait_for(ended.wait(), PATIENCE_S)  # nobody would take what it finds


async def test_an_order_is_carried_out_though_the_caller_has_gone(callee: Callee, peers: GrpcPeers) -> None:
    begun, may_end, done = asyncio.Event(), asyncio.Event(), []

    async def carry_out(request: Any) -> Any:
        begun.set()
        await may_end.wait()
        done.append(request)
        return UpdateMetadataResponse()

    callee.answers[UpdateMetadata] = carry_out

    await run_out_of_time(peers, callee, ORDER, begun)
    may_end.set()
    await asyncio.wait_for(callee.service.settled(), PATIENCE_S)
    assert done
    assert all(request == ORDER for request in done)


async def test_who_waits_when_all_connections_are_closed_is_told(callee: Callee, peers: GrpcPeers) -> None:
    begun = asyncio.Event()

    async def hang(_: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    callee.answers[ReplicaFetch] = hang
    waiting = asyncio.create_task(peers.call(callee.info, FETCH, timeout_ms=PATIENCE_MS))
    await begun.wait()

    await peers.close()

    with pytest.raises(NetworkException):
        await waiting
    with pytest.raises(NetworkException):
        await peers.call(callee.info, FETCH, timeout_ms=PATIENCE_MS)


async def test_what_the_other_broker_does_not_know_is_said(callee: Callee, peers: GrpcPeers) -> None:
    request = StopReplica(controller_id=1, controller_epoch=1, broker_epoch=1, partitions=())

    with pytest.raises(UnsupportedVersion):
        await peers.call(callee.info, request, timeout_ms=PATIENCE_MS)
