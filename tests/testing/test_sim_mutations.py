"""The simulation can fail: with one rule broken at a time, a bounded number of seeds finds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from sparklog.broker import adoption, node, restoration
from sparklog.broker.apis import replica_fetch
from sparklog.client.cluster import Cluster
from sparklog.cluster import isr_writing, partition_states, restored_topics
from sparklog.cluster.model import PartitionInfo
from sparklog.cluster.restored_topics import Restored
from sparklog.cluster.store import ANY_VERSION, Store
from sparklog.cluster.topics import TopicStore
from sparklog.controller import liveness
from sparklog.controller.liveness import Liveness
from sparklog.controller.partition_machine import PartitionMachine
from sparklog.group.offsets import Offsets
from sparklog.group.partition_log import PartitionLog
from sparklog.log import recovery
from sparklog.log.directory.topic_configs import KeptConfig
from sparklog.log.segment import segment
from sparklog.log.segment.scan import BatchPlace
from sparklog.log.segment.segment import ReadSegment
from sparklog.records.key_map import KeyMap
from sparklog.replica.messages import AlterIsr, IsrAltered
from sparklog.replica.partition import Partition
from sparklog.testing.sim_faults import Fault, FaultKind
from sparklog.testing.sim_run import run
from sparklog.testing.sim_seed import Scenario, scenario_of
from support.runs.seeds import SEED, seeds

pytestmark = [pytest.mark.slow, pytest.mark.soak]

SEEDS = 200
Scenarios = Callable[[int], Scenario]
Break = Callable[[pytest.MonkeyPatch], None]
HARM = {
    "lost write",
    "inconsistent offset",
    "divergence",
    "duplicate",
    "aborted read",
    "sequence",
    "lost commit",
    "two leaders",
    "unclean election",
    "unseen by group",
    "wrong table",
    "wrong lookup",
    "vanished commit",
    "stale commit",
    "exception",
    "start",
    "truncation",
    "unsettled",
}


def of_kinds(*kinds: FaultKind) -> Scenarios:
    """Small clusters, nothing else in them: seeds that take less time."""
    return lambda seed: plain(scenario_of(seed, kinds=kinds))


def with_members(*kinds: FaultKind) -> Scenarios:
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), members=3)


def with_users(*kinds: FaultKind) -> Scenarios:
    """The real client too, and topics that are deleted and made again under it."""
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), users=2, administers=True)


def with_administrators(*kinds: FaultKind) -> Scenarios:
    """Topics that are deleted and created again, and a client that commits by their names."""
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), administers=True)


def without_administrators(*kinds: FaultKind) -> Scenarios:
    """No topics that are deleted: a store that is lost later would have them come back."""
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), administers=False)


def with_tables(*kinds: FaultKind) -> Scenarios:
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), compacts=True)


def with_read_tables(*kinds: FaultKind) -> Scenarios:
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), users=2, compacts=True)


def one_broker(*kinds: FaultKind) -> Scenarios:
    return lambda seed: dataclasses.replace(
        plain(scenario_of(seed, kinds=kinds, brokers=1)), users=2, administers=False, min_insync_replicas=1
    )


def plain(scenario: Scenario) -> Scenario:
    return dataclasses.replace(
        scenario,
        flushes=False,
        members=0,
        users=0,
        compacts=False,
        snapshots=False,
        guests=False,
        has_sqlite=False,
        trims=False,
        retention_bytes=-1,
        disks=1,
        fetch_bytes=1 << 20,
    )


def a_leader_that_nobody_can_tell(seed: int) -> Scenario:
    """A broker reaches the store and clients, but no other broker; the store ends its session, so others lead."""
    node, other = seed % 3, (seed + 1) % 3
    plan = tuple(
        Fault(at_s=at_s, kind=kind, node=node, other=other, lasts_s=11.0, size=0.5)
        for at_s, kind in ((2.0, FaultKind.ISOLATE), (2.5, FaultKind.EXPIRE))
    )
    return dataclasses.replace(
        plain(scenario_of(seed, kinds=[FaultKind.KILL], lasts_s=15.0)), min_insync_replicas=1, plan=plan
    )


def does_harm(scenario: Scenario) -> bool:
    return bool({anomaly.kind for anomaly in run(scenario).anomalies} & HARM)


def logs_that_differ_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader never tells a follower that its log departs from its own."""
    monkeypatch.setattr(replica_fetch, "find_divergence", lambda *_, **__: None)


def a_stale_leader_is_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was the leader changes the in-sync replicas in the store, whoever leads by now."""

    def alter_isr(store: Store, change: AlterIsr) -> IsrAltered:
        path = partition_states.state_path(*change.name)
        current = partition_states.decode_state(store.get(path).data, 0)
        state = partition_states.Leadership(
            leader=current.leader,
            leader_epoch=current.leader_epoch,
            isr=change.isr,
            controller_epoch=change.controller_epoch,
        )
        version = store.set(path, partition_states.encode_state(state), ANY_VERSION)
        return IsrAltered(isr=change.isr, partition_epoch=version)

    def alter_isrs(store: Store, changes: Sequence[AlterIsr]) -> list[IsrAltered]:
        return [alter_isr(store, change) for change in changes]

    monkeypatch.setattr(isr_writing, "alter_isrs", alter_isrs)


def records_are_committed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark is the leader's own log end."""

    def count(self: Partition) -> None:
        self._counted = ()

    monkeypatch.setattr(Partition, "_count", count)


def a_shrunk_isr_counts_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that cannot reach the store goes on without those whom it wants to put out."""

    def maximal_isr(self: Partition) -> frozenset[int]:
        return frozenset(self.pending.isr if self.pending else self.in_sync_replicas)

    monkeypatch.setattr(Partition, "maximal_isr", property(maximal_isr))


def whoever_is_registered_is_who_he_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new controller does not ask which lives of brokers the last one knew: as in Apache Kafka."""

    async def look(self: Liveness) -> None:
        parts = self._parts
        for broker in (await parts.store.read(liveness.read_brokers, parts.watching)).values():
            self._open(broker)
        await liveness.publish_broker_epochs(parts, parts.context.brokers)

    monkeypatch.setattr(Liveness, "look", look)


def commits_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator answers before any follower has what it wrote."""
    monkeypatch.setattr(PartitionLog, "is_committed", lambda *_: True)


def whoever_is_online_is_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every topic is taken for one that allows unclean elections."""
    monkeypatch.setattr(PartitionMachine, "_is_unclean", lambda *_: True)


def positions_are_of_whichever_topic_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client names no topic's id: as gRPC's Fetch and OffsetCommit were without one."""
    monkeypatch.setattr(Cluster, "known_topic_id", lambda *_: "")


def what_lies_below_the_first_dirty_offset_is_superseded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction looks at no key of what was compacted before."""
    monkeypatch.setattr(KeyMap, "survives", lambda _, keys, offsets, versions=None: np.zeros(len(offsets), np.bool_))


def what_is_appended_is_shown_as_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """OffsetFetch answers with commits that may still be lost."""
    monkeypatch.setattr(Offsets, "_committed_of", lambda self, group_id: dict(self.of(group_id)))


def a_gap_belongs_to_the_batch_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch goes on at the next batch, with the epoch of the last one, whatever epoch begins in between."""
    cut = ReadSegment.cut

    def cut_behind_gaps(self: ReadSegment, first: BatchPlace, stop: int, end: int, max_offset: int) -> tuple[int, int]:
        at, next_offset = cut(self, first, stop, end, max_offset)
        return at, next((place.base_offset for place in self.walk(at, end)), next_offset)

    monkeypatch.setattr(ReadSegment, "cut", cut_behind_gaps)


def a_store_is_believed_whatever_it_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "has_lost_changes", lambda *_, **__: False)
    monkeypatch.setattr(node, "is_replaced", lambda *_: False)


def indexes_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index is not compared with its segment when it is opened."""
    monkeypatch.setattr(segment, "offsets_fit", lambda *_: True)
    monkeypatch.setattr(segment, "times_fit", lambda *_: True)


def a_lost_file_of_records_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap below the recovery point is always taken for compaction's."""
    monkeypatch.setattr(recovery, "check_missing", lambda *_, **__: None)
    monkeypatch.setattr(recovery, "check_closed", lambda *_: None)


def commits_belong_to_whichever_topic_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator keeps the offsets of a deleted topic, and shows them for the one that has its name now."""
    monkeypatch.setattr(Offsets, "_is_of_another", lambda *_: False)
    monkeypatch.setattr(Offsets, "delete_topics", lambda *_: None)
    monkeypatch.setattr(Offsets, "delete_of_others", lambda *_: None)


def adopted_folders_get_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose configuration the store has lost is configured as the broker is."""
    restore_topic = restoration.restore_topic

    def restore(store: Store, topics: TopicStore, name: str, copy: KeptConfig, **keys: Any) -> Restored:
        return restore_topic(store, topics, name, dataclasses.replace(copy, overrides={}), **keys)

    monkeypatch.setattr(restoration, "restore_topic", restore)
    monkeypatch.setattr(adoption, "_overrides_of", lambda *_: ({}, "default"))


def whoever_restores_a_topic_leads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first broker that starts with an empty store takes itself for the one that is in sync."""
    first_states = restored_topics._first_states

    def led(copy: KeptConfig, epochs: Mapping[int, int], broker_id: int) -> list[PartitionInfo]:
        return [
            dataclasses.replace(info, leader=broker_id, in_sync_replicas=(broker_id,))
            for info in first_states(copy, epochs, broker_id)
        ]

    monkeypatch.setattr(restored_topics, "_first_states", led)


@pytest.mark.parametrize(
    ("break_it", "scenarios", "first"),
    [
        (logs_that_differ_are_not_cut, a_leader_that_nobody_can_tell, 1),
        (a_stale_leader_is_not_fenced, a_leader_that_nobody_can_tell, 0),
        (records_are_committed_at_once, of_kinds(FaultKind.KILL, FaultKind.PAUSE), 0),
        (a_shrunk_isr_counts_before_it_is_written, of_kinds(FaultKind.CUT_STORE, FaultKind.ISOLATE), 11),
        (whoever_is_registered_is_who_he_was, of_kinds(FaultKind.POWER), 11),
        (commits_count_at_once, with_members(FaultKind.KILL, FaultKind.ISOLATE), 5),
        (whoever_is_online_is_elected, of_kinds(FaultKind.KILL, FaultKind.ISOLATE), 2),
        (positions_are_of_whichever_topic_has_the_name, with_users(FaultKind.KILL, FaultKind.PAUSE), 6),
        (what_lies_below_the_first_dirty_offset_is_superseded, with_tables(FaultKind.KILL), 19),
        (what_is_appended_is_shown_as_committed, with_members(FaultKind.KILL, FaultKind.ISOLATE, FaultKind.PAUSE), 22),
        (a_gap_belongs_to_the_batch_before_it, with_read_tables(FaultKind.KILL, FaultKind.RESTART), 7),
        (a_store_is_believed_whatever_it_has_lost, one_broker(FaultKind.LOST_STORE), 0),
        (indexes_are_believed, with_users(FaultKind.DAMAGE), 37),
        (a_lost_file_of_records_is_not_missed, of_kinds(FaultKind.BAD_LOG), 22),
        (commits_belong_to_whichever_topic_has_the_name, with_administrators(FaultKind.KILL), 6),
        (adopted_folders_get_the_defaults, one_broker(FaultKind.LOST_STORE), 0),
        (whoever_restores_a_topic_leads_it, without_administrators(FaultKind.LOST_STORE, FaultKind.ISOLATE), 2),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_rule_is_found(
    break_it: Break, scenarios: Scenarios, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a seed on that finds it today, in little time; soaks begin elsewhere."""
    break_it(monkeypatch)
    begin = first if SEED is None else seeds(0, soak=1)[0]
    assert any(does_harm(scenarios(seed)) for seed in range(begin, begin + SEEDS))
