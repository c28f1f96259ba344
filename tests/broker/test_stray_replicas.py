"""Logs of partitions that have moved to other brokers: a full update deletes those that are strays."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.dynamic_config import DynamicConfig
from sparklog.base.errors import StoreError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import update_metadata
from sparklog.broker.client_telemetry import ClientTelemetry
from sparklog.broker.strays import StrayReplicas
from sparklog.cluster.messages import TopicState, UpdateMetadata
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import PartitionInfo
from sparklog.replica.messages import StopPartition
from sparklog.security.acls import AclRules
from sparklog.security.authorizer import Authorizer
from sparklog.security.quotas import ClientQuotas, QuotaWindows

T0 = TopicPartition("t", 0)
ID, OTHER_ID = UUID(int=1), UUID(int=2)


def told(replicas: tuple[int, ...], isr: tuple[int, ...], *, is_full: bool = True, topic_id: UUID = ID) -> Any:
    info = PartitionInfo(leader=isr[0], leader_epoch=5, replicas=replicas, in_sync_replicas=isr)
    return UpdateMetadata(
        controller_id=2,
        controller_epoch=3,
        broker_epoch=7,
        brokers=(),
        topics=(TopicState(name="t", topic_id=topic_id, partitions=(info,), overrides={}),),
        is_full=is_full,
    )


class Broker1:
    """Broker 1 with these logs, and the replicas that it stops after an update of the cluster's state.

    topic_id: the id in their folders; None: they have none
    """

    def __init__(
        self,
        *logs: TopicPartition,
        unsure: Collection[str] | StoreError = (),
        topic_id: UUID | None = ID,
        records: int = 9,
    ) -> None:
        self.stopped: list[StopPartition] = []
        self.unsure = unsure
        metadata: Any = MetadataCache()
        found: Any = [
            SimpleNamespace(partition=name, topic_id=topic_id, log_start_offset=0, log_end_offset=records)
            for name in logs
        ]
        changes: Any = SimpleNamespace(
            delete_strays=self._delete, update_configs=lambda *_: None, keep_topics=self._keep,
            keep_brokers=self._keep, check_broker_epoch=lambda _: None,
        )  # fmt: skip
        topics: Any = SimpleNamespace(find_unsure=self._find_unsure)
        self.strays = StrayReplicas(1, found, metadata, changes, topics)
        services: Any = SimpleNamespace(
            metadata=metadata,
            state_changes=changes,
            authorizer=Authorizer(AclRules(), is_enabled=False),
            client_quotas=ClientQuotas(QuotaWindows()),
            client_telemetry=ClientTelemetry(uuid4),
            dynamic=DynamicConfig(BrokerConfig()),
            groups=SimpleNamespace(forget_topics=lambda _: None),
            strays=self.strays,
            store_guard=SimpleNamespace(when_sure=lambda *_: None, check_controller=lambda _: None),
        )
        self.update = update_metadata.API.bind(services)

    async def _delete(self, find: Callable[[], Collection[StopPartition]]) -> None:
        self.stopped += find()

    async def _keep(self, *_: Any) -> None:
        return

    async def _find_unsure(self, names: Collection[str]) -> set[str]:
        if isinstance(self.unsure, StoreError):
            raise self.unsure
        return {*names} & {*self.unsure}


async def stops_of(
    request: UpdateMetadata, *logs: TopicPartition, unsure: Collection[str] | StoreError = ()
) -> list[StopPartition]:
    broker = Broker1(*logs, unsure=unsure)
    await broker.update(request)
    return broker.stopped


async def test_moved_replicas_are_deleted_unless_a_later_epoch_is_known() -> None:
    assert await stops_of(told((2, 3), (2,)), T0) == [StopPartition(name=T0, leader_epoch=5, delete=True)]


@pytest.mark.parametrize(
    ("request_", "log"),
    [
        (told((1, 2), (2,)), T0),
        (told((2,), (1,)), T0),
        (told((2,), (2,), is_full=False), T0),
        (told((2,), (2,), topic_id=OTHER_ID), T0),
        (told((2,), (2,)), TopicPartition("t", 1)),
        (told((2,), (2,)), TopicPartition("u", 0)),
    ],
    ids=["its own", "in sync", "not everything", "another topic", "unknown partition", "another name"],
)
async def test_logs_that_are_no_strays_stay(request_: UpdateMetadata, log: TopicPartition) -> None:
    assert await stops_of(request_, log) == []


@pytest.mark.parametrize("unsure", [["t"], StoreError("not there")], ids=["unsure", "not known"])
async def test_a_replica_stays_unless_its_topics_assignment_is_known_to_be_sure(
    unsure: Collection[str] | StoreError, caplog: pytest.LogCaptureFixture
) -> None:
    assert await stops_of(told((2, 3), (2,)), T0, unsure=unsure) == []
    assert "stay" in caplog.text


async def test_strays_that_had_to_stay_are_deleted_once_the_store_is_back() -> None:
    broker = Broker1(T0, unsure=StoreError("away"))
    await broker.update(told((2, 3), (2,)))
    await broker.strays.delete_pending()
    assert broker.stopped == []

    broker.unsure = ()
    await broker.strays.delete_pending()
    await broker.strays.delete_pending()
    assert broker.stopped == [StopPartition(name=T0, leader_epoch=5, delete=True)]


async def test_a_log_without_its_topic_s_id_is_deleted_if_it_is_empty() -> None:
    """Its broker lost power between the creations of the folder and of the file with the id."""
    for records in (0, 1):
        broker = Broker1(T0, topic_id=None, records=records)
        await broker.update(told((2, 3), (2,)))
        stops = [StopPartition(name=T0, leader_epoch=5, delete=True)]
        assert broker.stopped == ([] if records else stops)


async def test_a_stray_that_has_become_a_replica_again_stays() -> None:
    broker = Broker1(T0, unsure=StoreError("away"))
    await broker.update(told((2, 3), (2,)))
    await broker.update(told((1, 2), (2,), is_full=False))
    broker.unsure = ()
    await broker.strays.delete_pending()
    assert broker.stopped == []
