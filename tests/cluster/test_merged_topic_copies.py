"""Copies of topics that brokers restore in an empty store: the newest assignment and configuration stay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import UUID

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.cluster.config_nodes import CONFIG_CHANGES
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.partition_states import Leadership, encode_state, read_states
from sparklog.cluster.restored_topics import RestoreOutcome, restore_topic
from sparklog.cluster.topics import TopicStore, state_path
from sparklog.log.directory.topic_configs import AssignmentCopy, TopicCopy
from support.store_engines import dying_after_each_write

ID = UUID(int=7)
STORE = "lost"


class Restoring:
    """The changes of brokers to an empty store."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.tree = MemoryTree()
        self.store = store or MemoryStore(self.tree)
        self.topics = TopicStore(self.store, TopicConfig())
        self.topics.make_paths()

    def restore(self, broker_id: int, copy: TopicCopy, *, epoch: int = 100, store_id: str = STORE) -> RestoreOutcome:
        epochs = dict.fromkeys(copy.partitions, epoch)
        return restore_topic(self.store, self.topics, "t", copy, store_id=store_id, broker_id=broker_id, epochs=epochs)

    @property
    def replicas(self) -> list[tuple[int, ...]]:
        return [each.replicas for each in self.topics.load_assignment("t").partitions]

    def state(self, number: int = 0) -> Leadership:
        name = TopicPartition("t", number)
        return read_states(self.store, [name])[name]

    def elect(self, leader: int) -> None:
        state = Leadership(leader=leader, leader_epoch=200, isr=(leader,), controller_epoch=1)
        self.store.set(state_path("t", 0), encode_state(state))


@pytest.fixture
def restoring() -> Restoring:
    return Restoring()


def copy_of(
    *assigned: tuple[int, ...], epoch: int = 5, configs: Mapping[str, str] | None = None, seen_change: int = 0
) -> TopicCopy:
    partitions = {
        number: AssignmentCopy(replicas=each, leader_epoch=epoch) for number, each in enumerate(assigned) if each
    }
    return TopicCopy(ID, configs or {}, partitions=partitions, seen_change=seen_change)


def test_the_first_copy_makes_the_topic_and_only_a_sole_replica_leads(restoring: Restoring) -> None:
    assert restoring.restore(1, copy_of((1, 2), (1,), (2,))) is RestoreOutcome.CREATED
    assert restoring.replicas == [(1, 2), (1,), (2,)]
    assert [(restoring.state(n).leader, restoring.state(n).isr) for n in range(3)] == [(-1, ()), (1, (1,)), (-1, ())]
    assert restoring.restore(2, copy_of((1, 2), (1,), (2,))) is RestoreOutcome.NOTHING
    assert restoring.topics.is_unsure("t")


@pytest.mark.parametrize(("epoch", "expected"), [(6, (2, 3)), (4, (1, 2))])
def test_the_newest_assignment_stays(restoring: Restoring, epoch: int, expected: tuple[int, ...]) -> None:
    restoring.restore(1, copy_of((1, 2), epoch=5))
    version = restoring.state().version
    outcome = restoring.restore(2, copy_of((2, 3), epoch=epoch))
    assert restoring.replicas == [expected]
    assert (outcome, restoring.state().version) == (
        (RestoreOutcome.MERGED, version + 1) if epoch > 5 else (RestoreOutcome.NOTHING, version)
    )  # an election that was decided before fails
    assert restoring.restore(3, copy_of((1, 3), epoch=5)) is RestoreOutcome.NOTHING


def test_of_equally_old_assignments_the_larger_one_stays(restoring: Restoring) -> None:
    """More replicas are compared then, and a move goes on."""
    restoring.restore(1, copy_of((1, 2)))
    moving = AssignmentCopy(replicas=(3, 2, 1), adding=(3,), removing=(1,), leader_epoch=5)
    restoring.restore(2, TopicCopy(ID, {}, partitions={0: moving}))
    [found] = restoring.topics.load_assignment("t").partitions
    assert (found.replicas, found.adding, found.removing) == ((3, 2, 1), (3,), (1,))


def test_an_elected_partition_is_not_changed_any_more(restoring: Restoring) -> None:
    restoring.restore(1, copy_of((1, 2)))
    restoring.elect(1)
    before = restoring.state()
    assert restoring.restore(2, copy_of((2, 3), epoch=9), epoch=500) is RestoreOutcome.NOTHING
    assert (restoring.replicas, restoring.state()) == ([(1, 2)], before)


def test_partitions_that_the_first_copy_lacks_are_added(restoring: Restoring) -> None:
    restoring.restore(1, copy_of((), (1, 2)))
    assert restoring.replicas == [(), (1, 2)]
    assert restoring.restore(2, copy_of((1, 2), (1, 2), (), (3,))) is RestoreOutcome.MERGED
    assert restoring.replicas == [(1, 2), (1, 2), (), (3,)]
    assert [restoring.state(number).leader for number in range(4)] == [-1] * 4


def test_leader_epochs_go_on_above_those_of_every_broker(restoring: Restoring) -> None:
    restoring.restore(1, copy_of((1, 2)), epoch=100)
    assert restoring.restore(2, copy_of((1, 2)), epoch=300) is RestoreOutcome.MERGED
    assert restoring.state().leader_epoch == 300
    assert restoring.restore(3, copy_of((1, 2)), epoch=200) is RestoreOutcome.NOTHING


@pytest.mark.parametrize(
    ("seen_change", "store_id", "is_altered", "expected"),
    [(9, STORE, False, "new"), (3, STORE, False, "old"), (9, "another", False, "old"), (9, STORE, True, "altered")],
)
def test_the_newest_configuration_stays_unless_it_was_changed_since(
    restoring: Restoring, seen_change: int, store_id: str, is_altered: bool, expected: str
) -> None:
    restoring.restore(1, copy_of((1, 2), configs={"retention.ms": "old"}, seen_change=5))
    if is_altered:
        restoring.topics.change_overrides("t", lambda _: {"retention.ms": "altered"})
    newer = copy_of((1, 2), configs={"retention.ms": "new"}, seen_change=seen_change)
    restoring.restore(2, newer, store_id=store_id)
    assert restoring.topics.load_overrides("t") == {"retention.ms": expected}


def test_the_newest_configuration_stays_though_the_broker_dies_while_it_merges_it() -> None:
    newer = copy_of((1, 2), configs={"retention.ms": "new"}, seen_change=9)
    deaths = 0
    for store in dying_after_each_write(
        lambda store: Restoring(store).restore(1, copy_of((1, 2), configs={"retention.ms": "old"}, seen_change=5)),
        lambda store: Restoring(store).restore(2, newer),
    ):
        deaths += 1
        restoring = Restoring(store)
        restoring.restore(2, newer)
        assert restoring.topics.load_overrides("t") == {"retention.ms": "new"}
        assert store.children(CONFIG_CHANGES)
    assert deaths


def test_another_topic_of_the_name_stays_as_it_is(restoring: Restoring) -> None:
    restoring.topics.add("t", UUID(int=8), [(1,)], {})
    assert restoring.restore(1, copy_of((1, 2))) is RestoreOutcome.OTHER_TOPIC
    assert restoring.replicas == [(1,)]


def test_a_topic_that_was_not_restored_from_a_copy_stays_as_it_is(restoring: Restoring) -> None:
    restoring.topics.add("t", ID, [(1,)], {})
    assert restoring.restore(1, copy_of((1, 2))) is RestoreOutcome.NOTHING
    restoring.topics.set_unsure("t")
    assert restoring.restore(1, copy_of((1, 2))) is RestoreOutcome.NOTHING
    assert restoring.replicas == [(1,)]


def test_brokers_that_restore_at_once_lose_nothing_of_each_other(restoring: Restoring) -> None:
    """The second broker restores between the reads and the write of the first."""
    restoring.restore(1, copy_of((1, 2)))
    once = [lambda: restoring.restore(3, copy_of((1, 2), (1, 3), epoch=6))]

    class Racing(MemoryStore):
        def multi(self, operations: object) -> None:
            if once:
                once.pop()()
            super().multi(operations)  # type: ignore[arg-type]

    racing = Racing(restoring.tree)
    topics = TopicStore(racing, TopicConfig())
    epochs = {0: 300}
    restore_topic(racing, topics, "t", copy_of((2, 3), epoch=7), store_id=STORE, broker_id=2, epochs=epochs)
    assert restoring.replicas == [(2, 3), (1, 3)]
    assert json.loads(restoring.store.get("/brokers/topics/t/unsure").data)["partitions"]["0"]["leader_epoch"] == 7
