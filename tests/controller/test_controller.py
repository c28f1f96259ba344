"""The controller with scripted brokers, on a store in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from sparklog.base.errors import ControllerMoved, InvalidUpdateVersion, NotController
from sparklog.base.ids import TopicPartition
from sparklog.cluster.memory import MemoryStore
from sparklog.cluster.messages import UpdateMetadata
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.store import SessionState
from sparklog.controller import channels
from sparklog.controller.active import ActiveController
from sparklog.controller.context import PartitionAndReplica
from sparklog.controller.states import PartitionState, ReplicaState
from sparklog.replica.messages import LeaderAndIsr
from support.controller.fake_brokers import World
from support.controller.virtual_time import simulated

T0 = TopicPartition("t", 0)
THREE = [(1, 2, 3)]


async def cluster(*, topics: dict[str, list[tuple[int, ...]]] | None = None, **config: Any) -> World:
    world = World(**config)
    await world.start(1, 2, 3)
    for name, replicas in (topics or {}).items():
        world.create_topic(name, replicas)
    await world.settle()
    return world


@simulated
async def test_one_broker_is_the_controller_and_all_brokers_know_it() -> None:
    world = await cluster(topics={"t": THREE})

    assert world.controller.broker_id == 1
    assert world.differences() == []
    assert (world.state(T0).leader, world.state(T0).isr) == (1, (1, 2, 3))


@simulated
async def test_the_leader_s_death_makes_the_next_replica_in_sync_leader() -> None:
    world = await cluster(topics={"t": [(3, 2, 1)]})
    world.brokers[3].kill()
    world.brokers[3].expire()
    await world.settle()

    state = world.state(T0)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 1))
    assert world.differences() == []


@simulated
async def test_a_returning_broker_gets_the_full_state_and_takes_no_leaderships() -> None:
    world = await cluster(topics={"t": [(3, 2, 1)]})
    world.brokers[3].kill()
    world.brokers[3].expire()
    await world.settle()
    await world.start(3)
    await world.settle()

    assert world.state(T0).leader == 2
    assert world.brokers[3].partitions[T0].leader == 2
    assert world.differences() == []


@simulated
async def test_a_broker_that_restarts_at_once_has_lost_its_leaderships_and_its_place_in_the_isr() -> None:
    world = await cluster(topics={"t": [(3, 2, 1)], "alone": [(3,)]})
    world.brokers[3].kill()
    await world.start(3)
    await world.settle()

    state, alone = world.state(T0), world.state(TopicPartition("alone", 0))
    assert (state.leader, state.isr) == (2, (2, 1))
    assert (alone.leader, alone.isr) == (3, (3,))
    assert alone.leader_epoch > 0
    assert world.differences() == []


@simulated
async def test_the_controller_itself_restarts_at_once_and_treats_itself_as_one_that_has_failed() -> None:
    """Its log may have lost records that its followers have, so it cannot continue as the leader."""
    world = await cluster(topics={"t": THREE})
    world.brokers[1].kill()
    await world.start(1)
    await world.settle()

    state = world.state(T0)
    assert (state.leader, state.isr) == (2, (2, 3))
    assert world.controller.broker_id == 1
    assert world.controller.controller.epoch == 2
    assert world.differences() == []


@simulated
async def test_of_a_leader_that_is_away_and_a_follower_that_restarted_the_leader_is_waited_for() -> None:
    """The follower may have lost unflushed records; the leader's disk has all."""
    world = await cluster(topics={"t": [(2, 3)]})
    world.brokers[2].kill()
    world.brokers[3].kill()
    world.brokers[2].expire()
    await world.start(3)
    await world.settle()
    assert (world.state(T0).leader, world.state(T0).isr) == (-1, (2,))

    await world.start(2)
    await world.settle()
    assert (world.state(T0).leader, world.state(T0).isr) == (2, (2,))
    assert world.differences() == []


@simulated
async def test_a_follower_s_earlier_life_cannot_enter_the_isr_once_the_controller_knows_that_it_is_over() -> None:
    world = await cluster(topics={"t": THREE})
    world.set_isr(T0, (1, 2))
    await world.settle()
    earlier = world.brokers[3].epoch
    world.brokers[3].kill()
    await world.start(3)
    await world.settle()
    world.brokers[3].epoch, later = earlier, world.brokers[3].epoch

    with pytest.raises(InvalidUpdateVersion, match="broker 3"):
        world.set_isr(T0, (1, 2, 3))
    world.brokers[3].epoch = later
    world.set_isr(T0, (1, 2, 3))

    await world.settle()
    assert world.state(T0).isr == (1, 2, 3)


@simulated
async def test_an_election_does_not_overwrite_an_unreported_isr_change() -> None:
    world = await cluster(topics={"t": [(3, 2, 1)]})
    world.brokers[3].kill()
    world.set_isr(T0, (3, 1))
    world.brokers[3].expire()
    await world.settle()

    assert (world.state(T0).leader, world.state(T0).isr) == (1, (1,))


@simulated
async def test_all_brokers_are_informed_of_an_isr_change_and_the_notice_is_deleted() -> None:
    world = await cluster(topics={"t": THREE})
    world.set_isr(T0, (1, 3))
    await world.settle()

    assert world.differences() == []
    assert world.store.children("/isr_change_notification") == []


@simulated
async def test_partitions_are_added_to_a_topic() -> None:
    world = await cluster(topics={"t": THREE})
    world.add_partitions("t", [(2, 3), (3, 1)])
    await world.settle()

    assert [world.state(name).leader for name in world.names()] == [1, 2, 3]
    assert world.differences() == []


@simulated
async def test_a_new_topic_with_no_broker_alive_waits_for_the_first() -> None:
    world = await cluster()
    world.brokers[3].kill()
    world.brokers[3].expire()
    await world.settle()
    world.create_topic("t", [(3,)])
    await world.settle()
    assert world.brokers[1].metadata.find_partition(T0).leader == -1

    await world.start(3)
    await world.settle()
    assert (world.state(T0).leader, world.state(T0).leader_epoch) == (3, 0)
    assert world.differences() == []


@simulated
async def test_a_topic_may_lose_records_rather_than_wait_if_it_says_so_now_or_before() -> None:
    world = await cluster(topics={"t": [(3, 2)], "u": [(3, 2)]})
    world.configure("u", {"unclean.leader.election.enable": "true"})
    for topic in ("t", "u"):
        world.set_isr(TopicPartition(topic, 0), (3,))
    world.brokers[3].kill()
    world.brokers[3].expire()
    await world.settle()
    assert world.state(T0).leader == -1
    assert (world.state(TopicPartition("u", 0)).leader, world.state(TopicPartition("u", 0)).isr) == (2, (2,))

    world.configure("t", {"unclean.leader.election.enable": "true"})
    await world.settle()
    assert (world.state(T0).leader, world.state(T0).isr) == (2, (2,))
    assert world.brokers[1].metadata.get("t").config.unclean_leader_election_enable
    assert world.store.children("/config/changes") == []
    assert world.differences() == []


@simulated
async def test_a_replica_whose_disk_has_failed_leads_no_more_and_is_out_of_sync() -> None:
    world = await cluster(topics={"t": [(3, 2, 1)], "other": [(3, 1)]})
    world.lose_disk(3, T0)
    await world.settle()

    assert (world.state(T0).leader, world.state(T0).isr) == (2, (2, 1))
    assert world.state(TopicPartition("other", 0)).leader == 3
    assert world.store.children("/log_dir_event_notification") == []
    assert world.differences() == []


@simulated
async def test_an_unreachable_broker_is_informed_once_it_can_be_reached() -> None:
    world = await cluster(topics={"t": THREE})
    world.brokers[2].is_cut = True
    for number in range(60):
        world.create_topic(f"u{number}", [(1, 2)])
        await world.settle(0.05)
    await world.settle()
    assert T0 in world.brokers[2].partitions
    assert len(world.brokers[2].partitions) == 1
    told = len(world.requests)

    world.brokers[2].is_cut = False
    await world.settle()
    assert world.differences() == []
    assert len(world.requests) - told < 60, "the broker's whole state, and not each of its steps"


@pytest.mark.parametrize("changes", range(5))
@simulated
async def test_a_broker_that_was_left_behind_knows_all_topics_before_it_leads(
    monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    """A coordinator that begins to lead deletes the offsets of topics that it takes for former ones."""
    monkeypatch.setattr(channels, "MAX_QUEUED", 5)
    world = await cluster(topics={"t": [(1,)], "led": [(2, 3)]})
    world.brokers[3].is_cut = True
    world.topics.mark_deleted("t", world.topics.load_assignment("t").topic_id)
    await world.settle()
    world.topics.add("t", UUID(int=9), [(1,)], {})
    await world.settle()
    for number in range(changes):
        world.configure("led", {"retention.ms": f"{number}"})
        await world.settle()
    world.brokers[2].kill()
    world.brokers[2].expire()
    await world.settle()
    assert world.state(TopicPartition("led", 0)).leader == 3
    before = len(world.requests)
    world.brokers[3].is_cut = False
    await world.settle()

    told, metadata = [request for broker, request in world.requests[before:] if broker == 3], MetadataCache()
    for request in told:
        if isinstance(request, UpdateMetadata):
            metadata.update(request)
        elif isinstance(request, LeaderAndIsr):
            assert metadata.get("t").topic_id == UUID(int=9)
    assert any(isinstance(request, LeaderAndIsr) for request in told)
    assert world.differences() == []


@simulated
async def test_another_broker_takes_over_from_a_controller_that_dies_or_stops() -> None:
    world = await cluster(topics={"t": THREE})
    await world.brokers[1].stop()
    await world.settle()
    assert (world.controller.broker_id, world.controller.controller.epoch) == (2, 2)
    assert world.state(T0).leader == 2

    world.brokers[2].kill()
    world.brokers[2].expire()
    await world.settle()
    assert (world.controller.broker_id, world.controller.controller.epoch) == (3, 3)
    assert world.state(T0).leader == 3
    assert world.differences() == []


@simulated
async def test_the_next_controllers_pass_an_epoch_that_the_store_has_lost() -> None:
    """Brokers that still run remember it, and would refuse each of them."""
    world = await cluster(topics={"t": THREE})
    for _ in range(9):
        world.controller.expire()
        await world.settle()
    lost = world.controller.controller.epoch
    assert lost == 10
    world.store.delete("/controller_epoch")
    world.controller.expire()
    world.create_topic("new", [(3, 2, 1)])
    await world.settle()

    epoch = world.controller.controller.epoch
    assert epoch is not None
    assert lost < epoch <= 2 * lost
    assert world.differences() == []


@simulated
async def test_a_controller_whose_session_expires_is_followed_by_another_and_comes_again_as_a_broker() -> None:
    world = await cluster(topics={"t": THREE})
    world.brokers[1].expire()
    await world.settle()

    assert world.controller.broker_id in (1, 2, 3)
    assert world.controller.controller.epoch == 2
    assert world.state(T0).leader == 2
    assert world.differences() == []


@simulated
async def test_a_controller_that_hears_late_that_its_former_session_has_expired_goes_on() -> None:
    world = await cluster()
    world.brokers[1].expire()
    await world.settle()
    elected = world.controller

    elected.controller._session_changed(SessionState.EXPIRED)
    world.create_topic("t", THREE)
    await world.settle()

    assert world.controller is elected
    assert world.state(T0).leader == 1
    assert world.differences() == []


@simulated
async def test_a_controller_that_does_not_know_that_it_is_deposed_changes_nothing() -> None:
    """It loses the store, another controller is elected and moves a leadership; the first acts on its old state."""
    world = await cluster(topics={"t": THREE})
    zombie = world.brokers[1].controller._active
    assert zombie is not None
    world.brokers[1].store.disconnect()
    world.tree.expire(world.brokers[1].store.session_id)
    await world.settle()
    assert world.state(T0).leader == 2
    before = world.state(T0)
    later = MemoryStore(world.tree)
    zombie.dependencies.store._store = later

    with pytest.raises(ControllerMoved):
        await zombie.dependencies.replicas.move([PartitionAndReplica(T0, 3)], ReplicaState.OFFLINE)
    with pytest.raises(ControllerMoved):
        await zombie.dependencies.partitions.move([T0], PartitionState.ONLINE)

    assert world.state(T0) == before
    assert {1} < {broker.broker_id for broker in world.controllers()}
    world.brokers[1].store.reconnect()
    await world.settle()
    assert world.controller.broker_id != 1
    assert world.differences() == []


@simulated
async def test_requests_to_a_broker_that_is_not_the_controller_get_not_controller() -> None:
    world = await cluster()

    async def epoch(active: ActiveController) -> int:
        return active.elected.epoch

    assert await world.brokers[1].controller.ask(epoch) == 1
    with pytest.raises(NotController):
        await world.brokers[2].controller.ask(epoch)
    asked = asyncio.ensure_future(world.brokers[1].controller.ask(epoch))
    await asyncio.sleep(0)
    await world.brokers[1].stop()
    with pytest.raises(NotController):
        await asked


@simulated
async def test_an_answer_that_the_store_lost_ends_a_controller_and_the_next_finishes_what_it_began() -> None:
    world = await cluster(topics={"t": [(3, 2, 1)]})
    world.brokers[1].store.lose_next_answer()
    world.brokers[3].kill()
    world.brokers[3].expire()
    await world.settle()

    assert (world.state(T0).leader, world.state(T0).isr) == (2, (2, 1))
    assert world.differences() == []
