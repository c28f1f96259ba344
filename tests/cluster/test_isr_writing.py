"""A leader changes many ISRs at once: in few transactions, each with its own outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from uuid import UUID

import pytest
from msgspec import structs

from sparklog.base.errors import BadVersion, ConnectionLoss, InvalidUpdateVersion, StoreError
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.broker_epochs import read_broker_epochs
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.partition_states import ISR_CHANGES, IsrWriter, Leadership, read_states, write_states
from sparklog.cluster.store import Operation, ensure_path
from sparklog.cluster.topics import TopicStore
from sparklog.replica.messages import AlterIsr, AlterIsrResult

NAMES = [TopicPartition("t", number) for number in range(50)]
FIRST = Leadership(leader=1, leader_epoch=0, isr=(1,), controller_epoch=1)


class CountingStore(MemoryStore):
    transactions = 0

    def multi(self, operations: Iterable[Operation]) -> None:
        self.transactions += 1
        super().multi(operations)


@pytest.fixture
def store() -> CountingStore:
    made = CountingStore(MemoryTree())
    topics = TopicStore(made, TopicConfig())
    topics.make_paths()
    topics.add("t", UUID(int=1), [(1, 2)] * len(NAMES), {})
    ensure_path(made, ISR_CHANGES)
    made.create("/controller_epoch", b"1")
    write_states(made, dict.fromkeys(NAMES, FIRST), 0)
    made.multi([read_broker_epochs(made).write({1: 5, 2: 6})])
    made.transactions = 0
    return made


def joins(name: TopicPartition, *, version: int = 0, epoch: int = 6) -> AlterIsr:
    return AlterIsr(
        name=name, topic_id=UUID(int=1), leader=1, leader_epoch=0, controller_epoch=1, isr=(1, 2),
        partition_epoch=version, joining={2: epoch},
    )  # fmt: skip


def write(store: MemoryStore, changes: Sequence[AlterIsr]) -> list[AlterIsrResult | BaseException]:
    async def all_at_once() -> list[AlterIsrResult | BaseException]:
        writer = IsrWriter(store)
        return await asyncio.gather(*map(writer.write, changes), return_exceptions=True)

    return asyncio.run(all_at_once())


def test_a_broker_joins_many_isrs_in_one_transaction_and_leaves_one_notice(store: CountingStore) -> None:
    assert write(store, [joins(name) for name in NAMES]) == [AlterIsrResult(isr=(1, 2), partition_epoch=1)] * len(NAMES)
    assert {state.isr for state in read_states(store, NAMES).values()} == {(1, 2)}
    assert store.transactions == 2  # the states, and the notice
    [notice] = store.children(ISR_CHANGES)
    told = json.loads(store.get(f"{ISR_CHANGES}/{notice}").data)["partitions"]
    assert [TopicPartition(each["topic"], each["partition"]) for each in told] == NAMES


def test_one_that_cannot_be_written_holds_up_no_other(store: CountingStore) -> None:
    moved, late, plain = NAMES[:3]
    write_states(store, {moved: structs.replace(FIRST, leader=2, leader_epoch=1, version=0)}, 0)
    found = write(store, [joins(moved), joins(late, epoch=4), joins(plain)])
    assert [type(each) for each in found] == [BadVersion, InvalidUpdateVersion, AlterIsrResult]
    assert [state.isr for state in read_states(store, NAMES[:3]).values()] == [(1,), (1,), (1, 2)]


def test_after_a_lost_answer_a_retry_finds_the_isr(store: CountingStore) -> None:
    store.lose_next_answer()
    changes = [joins(name) for name in NAMES[:3]]
    assert [type(each) for each in write(store, changes)] == [ConnectionLoss] * 3
    assert write(store, changes) == [AlterIsrResult(isr=(1, 2), partition_epoch=1)] * 3


def test_a_change_that_comes_while_others_are_written_is_written_next(store: CountingStore) -> None:
    async def one_after_the_other() -> list[AlterIsrResult]:
        writer = IsrWriter(store)
        first = asyncio.create_task(writer.write(joins(NAMES[0])))
        await asyncio.sleep(0)
        given_up = asyncio.create_task(writer.write(joins(NAMES[1])))
        second = asyncio.create_task(writer.write(joins(NAMES[2])))
        await asyncio.sleep(0)
        given_up.cancel()
        return [await first, await second]

    assert asyncio.run(one_after_the_other()) == [AlterIsrResult(isr=(1, 2), partition_epoch=1)] * 2


def test_nothing_is_written_once_the_store_has_lost_everything(store: CountingStore) -> None:
    """The state of a restored topic may have the version that the leader knows from the lost store."""

    async def write_to_lost() -> None:
        await IsrWriter(store, lambda: True).write(joins(NAMES[0]))

    with pytest.raises(StoreError, match="has lost everything"):
        asyncio.run(write_to_lost())
    assert read_states(store, NAMES[:1])[NAMES[0]].isr == (1,)
