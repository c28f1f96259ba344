"""The simulation can fail: with one rule broken at a time, a bounded number of seeds finds it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from msgspec import structs

from sparklog.base.ids import TopicPartition
from sparklog.broker import restoration, store_startup
from sparklog.broker.apis import list_offsets, replica_fetch
from sparklog.broker.store_guard import StoreGuard
from sparklog.broker.strays import StrayReplicas
from sparklog.broker.verification import FirstBatch, TransactionVerifier
from sparklog.client.cluster import Cluster
from sparklog.client.producer import accumulator
from sparklog.cluster import partition_states, restored_topics
from sparklog.cluster.model import PartitionInfo
from sparklog.cluster.restored_topics import RestoreOutcome
from sparklog.cluster.store import ANY_VERSION, Store
from sparklog.cluster.topics import TopicAssignment, TopicStore
from sparklog.controller import broker_changes
from sparklog.controller.broker_changes import BrokerChangeHandlers
from sparklog.controller.context import ControllerContext
from sparklog.controller.partition_state_machine import PartitionStateMachine
from sparklog.controller.store_changes import StoreChangeHandlers
from sparklog.coordinator.partition_log import PartitionLog
from sparklog.coordinator.transaction_messages import TransactionMarker, TransactionProtocol
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.consumer_group import ConsumerGroup, GroupEdit
from sparklog.group.consumer_heartbeat import ConsumerHeartbeats
from sparklog.group.consumer_member import JOIN_EPOCH, ConsumerMember
from sparklog.group.group import Work
from sparklog.group.offsets import CommittedOffsets
from sparklog.group.pending_offsets import PendingOffsets, TransactionalOffset
from sparklog.group.requests import ConsumerGroupHeartbeat, OffsetCommit, TxnOffsetCommit
from sparklog.group.topic_pattern import TopicMatches
from sparklog.log import recovery
from sparklog.log.directory.topic_configs import TopicCopy
from sparklog.log.log import TimestampOffset
from sparklog.log.producers import producer_state
from sparklog.log.producers.producer_state import MarkerBatch, ProducerState
from sparklog.log.producers.transactions import OpenTransactions
from sparklog.log.producers.verifications import UNVERIFIED, Verification
from sparklog.log.retention import SegmentFacts
from sparklog.log.segment import read_segment, segment
from sparklog.log.segment.read_segment import ReadSegment
from sparklog.log.segment.scan import BatchPlace
from sparklog.log.segment.segment_writer import SegmentWriter
from sparklog.log.segment.segments import Segments
from sparklog.records.key_map import KeyMap
from sparklog.records.rewriting import Rewriter
from sparklog.replica.manager import Replica
from sparklog.replica.messages import AlterIsr, AlterIsrResult
from sparklog.replica.partition import Partition
from sparklog.replica.state_changes import StateChanges
from sparklog.runtime.state_machine import Decision
from sparklog.testing.sim.faults import Fault, FaultKind
from sparklog.testing.sim.run import run
from sparklog.testing.sim.seed import Scenario, scenario_of
from sparklog.transaction import sink_machine, transaction_machine
from sparklog.transaction.changes import prepared
from sparklog.transaction.end_txn import EndTxnOutcome
from sparklog.transaction.marker_sender import MarkerSender
from sparklog.transaction.requests import TV1, EndTxn, InitProducerId
from sparklog.transaction.sink_changes import SinkMarkers
from sparklog.transaction.states import EMPTY, PREPARE_COMMIT
from sparklog.transaction.transaction_machine import TransactionMachine
from sparklog.transaction_topic.records import TransactionRecord, TransactionValue
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
    "lost producer",
    "two leaders",
    "unclean election",
    "unseen by group",
    "wrong table",
    "wrong lookup",
    "wrong epoch",
    "vanished commit",
    "deleted topic",
    "stale commit",
    "exception",
    "start",
    "truncation",
    "unsettled",
    "removed too early",
    "two owners",
    "late owner",
    "two of one instance",
    "taken while away",
    "open transaction",
    "torn transaction",
    "mixed transaction",
    "early read",
    "reordered write",
    "phantom",
    "poll skip",
    "unstable read",
    "lost copy",
    "doubled copy",
    "unread copy",
    "doubled batch",
    "lost batch",
    "last stable offset",
    "no replica",
}


def of_kinds(*kinds: FaultKind) -> Scenarios:
    """Small clusters, nothing else in them: seeds that take less time."""
    return lambda seed: plain(scenario_of(seed, kinds=kinds))


def with_members(*kinds: FaultKind) -> Scenarios:
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), members=3)


def with_patterns(*kinds: FaultKind) -> Scenarios:
    """Members that subscribe to patterns, and topics that are deleted and made again."""
    return lambda seed: dataclasses.replace(with_members(*kinds)(seed), administers=True)


def with_users(*kinds: FaultKind) -> Scenarios:
    """The real client too, and topics that are deleted and made again under it."""
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), users=2, administers=True)


def with_administrators(*kinds: FaultKind) -> Scenarios:
    """Topics that are deleted and created again, and a client that commits by their names."""
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), administers=True)


def with_slow_commits(*kinds: FaultKind) -> Scenarios:
    """Replicas that lag hold up what coordinators write, so that they write it again."""
    return lambda seed: dataclasses.replace(
        plain(scenario_of(seed, kinds=kinds, lasts_s=20.0)), administers=True, producers=1, commit_timeout_ms=1_000
    )


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


def with_slow_followers(*kinds: FaultKind) -> Scenarios:
    """The real client too, and followers that fetch one batch at a time: a new leader has only some of a request's."""
    return lambda seed: dataclasses.replace(
        plain(scenario_of(seed, kinds=kinds)), users=2, bursts=True, fetch_bytes=100
    )


def with_transactions(*kinds: FaultKind) -> Scenarios:
    return lambda seed: dataclasses.replace(
        plain(scenario_of(seed, kinds=kinds)), transacts=True, administers=False, producers=1
    )


def with_copiers(seed: int) -> Scenario:
    """Members that copy are killed, and pause, while all brokers are well."""
    return dataclasses.replace(with_transactions(FaultKind.KILL)(seed), plan=(), lasts_s=20.0)


def with_sinks(*kinds: FaultKind) -> Scenarios:
    return lambda seed: dataclasses.replace(with_transactions(*kinds)(seed), sinks=True)


def with_retention(*kinds: FaultKind) -> Scenarios:
    return lambda seed: dataclasses.replace(plain(scenario_of(seed, kinds=kinds)), retention_ms=3_000)


def plain(scenario: Scenario) -> Scenario:
    return dataclasses.replace(
        scenario,
        flushes=False,
        members=0,
        users=0,
        compacts=False,
        snapshots=False,
        guests=False,
        bursts=False,
        commit_timeout_ms=5_000,
        moves=False,
        has_sqlite=False,
        transacts=False,
        sinks=False,
        trims=False,
        retention_bytes=-1,
        retention_ms=-1,
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


def a_broker_that_comes_back_alone(seed: int) -> Scenario:
    """Topics are moved away from a broker that is down, and deleted; then it starts while the others are down."""
    plan = tuple(
        Fault(at_s=at_s, kind=FaultKind.KILL, node=node, other=0, lasts_s=lasts_s, size=0.5)
        for at_s, node, lasts_s in ((2.0, 0, 16.0), (12.0, 1, 12.0), (12.0, 2, 12.0))
    )
    scenario = plain(scenario_of(seed, kinds=[FaultKind.KILL], brokers=3, lasts_s=26.0))
    return dataclasses.replace(scenario, moves=True, min_insync_replicas=1, producers=1, plan=plan)


def indexes_that_are_damaged(seed: int) -> Scenario:
    """Brokers stop cleanly, and so rebuild no index later. Then each is killed and has a damaged index, many times."""
    restarts = [(4.0 + turn, FaultKind.RESTART, turn) for turn in range(3)]
    damages = [(7.5 + 0.4 * turn, FaultKind.DAMAGE, turn % 3) for turn in range(18)]
    plan = tuple(
        Fault(at_s=at_s, kind=kind, node=node, other=0, lasts_s=0.1, size=0.9)
        for at_s, kind, node in restarts + damages
    )
    scenario = plain(scenario_of(seed, kinds=[FaultKind.KILL], brokers=3, lasts_s=16.0))
    return dataclasses.replace(scenario, partitions=1, administers=False, min_insync_replicas=1, plan=plan)


def does_harm(scenario: Scenario) -> bool:
    return bool({anomaly.kind for anomaly in run(scenario).anomalies} & HARM)


def logs_that_differ_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader never tells a follower that its log departs from its own."""
    monkeypatch.setattr(replica_fetch, "find_divergence", lambda *_, **__: None)


def a_stale_leader_is_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was the leader changes the in-sync replicas in the store, whoever leads by now."""

    def alter_isr(store: Store, change: AlterIsr) -> AlterIsrResult:
        path = partition_states.state_path(*change.name)
        current = partition_states.decode_state(store.get(path).data, 0)
        state = partition_states.Leadership(
            leader=current.leader,
            leader_epoch=current.leader_epoch,
            isr=change.isr,
            controller_epoch=change.controller_epoch,
        )
        version = store.set(path, partition_states.encode_state(state), ANY_VERSION)
        return AlterIsrResult(isr=change.isr, partition_epoch=version)

    def alter_isrs(store: Store, changes: Sequence[AlterIsr]) -> list[AlterIsrResult]:
        return [alter_isr(store, change) for change in changes]

    monkeypatch.setattr(partition_states, "alter_isrs", alter_isrs)


def records_are_committed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark is the leader's own log end."""

    def count(self: Partition) -> None:
        self._counted = ()

    monkeypatch.setattr(Partition, "_choose_counted", count)


def a_shrunk_isr_counts_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that cannot reach the store goes on without those whom it wants to put out."""

    def maximal_isr(self: Partition) -> frozenset[int]:
        return frozenset(self.pending.isr if self.pending else self.in_sync_replicas)

    monkeypatch.setattr(Partition, "maximal_isr", property(maximal_isr))


def whoever_is_registered_is_who_he_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new controller does not ask which lives of brokers the last one knew: as in Apache Kafka."""

    async def look(self: BrokerChangeHandlers) -> None:
        parts = self._dependencies
        for broker in (await parts.store.read(broker_changes.read_brokers, parts.watches)).values():
            self._open(broker)
        await broker_changes.publish_broker_epochs(parts, parts.context.brokers)

    monkeypatch.setattr(BrokerChangeHandlers, "look", look)


def whoever_is_registered_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controlled shutdown asks nobody for a sign of life: as in Apache Kafka."""
    monkeypatch.setattr(ControllerContext, "have_answered", lambda self, _: set(self.brokers))


def moves_wait_for_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move goes on only if a leader gives notice of its ISR."""
    monkeypatch.setattr(ControllerContext, "note_isrs", lambda *_: None)
    isr_changed = StoreChangeHandlers.isr_changed

    async def changed(self: StoreChangeHandlers) -> None:
        await isr_changed(self)
        for operation in self._operations:
            await operation.isr_changed(self._dependencies.context.reassigning)

    monkeypatch.setattr(StoreChangeHandlers, "isr_changed", changed)


def commits_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator answers before any follower has what it wrote."""
    monkeypatch.setattr(PartitionLog, "is_committed", lambda *_: True)


def whoever_is_online_is_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every topic is taken for one that allows unclean elections."""
    monkeypatch.setattr(PartitionStateMachine, "_is_unclean", lambda *_: True)


def positions_are_of_whichever_topic_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client names no topic's id: as gRPC's Fetch and OffsetCommit were without one."""
    monkeypatch.setattr(Cluster, "known_topic_id", lambda *_: "")


def what_lies_below_the_first_dirty_offset_is_superseded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction looks at no key of what was compacted before."""
    monkeypatch.setattr(KeyMap, "survives", lambda _, keys, offsets, versions=None: np.zeros(len(offsets), np.bool_))


def what_is_appended_is_shown_as_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """OffsetFetch answers with commits that may still be lost."""
    monkeypatch.setattr(CommittedOffsets, "committed_of", lambda self, group_id: dict(self.of(group_id)))


def a_gap_belongs_to_the_batch_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch goes on at the next batch, with the epoch of the last one, whatever epoch begins in between."""
    cut = ReadSegment.cut

    def cut_behind_gaps(self: ReadSegment, first: BatchPlace, stop: int, end: int, max_offset: int) -> tuple[int, int]:
        at, next_offset = cut(self, first, stop, end, max_offset)
        return at, next((place.base_offset for place in self.walk(at, end)), next_offset)

    monkeypatch.setattr(ReadSegment, "cut", cut_behind_gaps)
    monkeypatch.setattr(read_segment, "SMALL_BYTES", -1)  # small reads do without `cut`


def a_store_is_believed_whatever_it_has_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_startup, "has_lost_changes", lambda *_, **__: False)
    monkeypatch.setattr(store_startup, "is_replaced", lambda *_: False)


def indexes_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index is not compared with its segment when it is opened."""
    monkeypatch.setattr(segment, "offsets_fit", lambda *_: True)
    monkeypatch.setattr(segment, "times_fit", lambda *_: True)


def a_lost_file_of_records_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap below the recovery point is always taken for compaction's."""
    monkeypatch.setattr(recovery, "check_missing", lambda *_, **__: None)
    monkeypatch.setattr(recovery, "check_closed", lambda *_: None)


def snapshots_have_last_batches_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka's: a broker that was stopped and started knows no other batch of a producer."""
    monkeypatch.setattr(producer_state, "LATE_PRODUCERS", 0)


def a_gap_that_begins_below_the_recovery_point_is_compactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it ends above that point, where nothing was compacted."""

    def is_hole(state: recovery.LoadState, end: int, base_offset: int) -> bool:
        return state.compacted_to is not None and base_offset > end >= max(state.flushed_to, state.compacted_to)

    monkeypatch.setattr(recovery, "_is_hole", is_hole)


def commits_belong_to_whichever_topic_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator keeps the offsets of a deleted topic, and shows them for the one that has its name now."""
    monkeypatch.setattr(CommittedOffsets, "_is_of_another", lambda *_: False)
    monkeypatch.setattr(CommittedOffsets, "delete_topics", lambda *_: None)
    monkeypatch.setattr(CommittedOffsets, "delete_of_others", lambda *_: None)


def offsets_go_with_whichever_topic_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator deletes the offsets of a deleted topic by its name, also those of its successor."""

    def delete_topics(self: CommittedOffsets, ids: Mapping[str, UUID], group_ids: Iterable[str], work: Work) -> None:
        self._delete_where(lambda partition, _: partition.topic in ids, group_ids, work)

    monkeypatch.setattr(CommittedOffsets, "delete_topics", delete_topics)


def adopted_folders_get_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose configuration the store has lost is configured as the broker is."""
    restore_topic = restoration.restore_topic

    def restore(store: Store, topics: TopicStore, name: str, copy: TopicCopy, **keys: Any) -> RestoreOutcome:
        return restore_topic(store, topics, name, structs.replace(copy, overrides={}), **keys)

    monkeypatch.setattr(restoration, "restore_topic", restore)
    monkeypatch.setattr(restoration, "_overrides_of", lambda *_: ({}, "default"))


def any_number_of_numbered_batches_is_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may have more batches of a partition than a broker remembers."""
    monkeypatch.setattr(accumulator, "NUMBERED_IN_FLIGHT", 1_000)


def a_log_starts_in_its_latest_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """ListOffsets answers EARLIEST with the leader epoch of the present, not with that of the record."""
    find = list_offsets._find

    def find_now(replica: Replica, position: int) -> TimestampOffset:
        found = find(replica, position)
        return (
            found._replace(leader_epoch=replica.partition.leader_epoch) if position == list_offsets.EARLIEST else found
        )

    monkeypatch.setattr(list_offsets, "_find", find_now)


def compaction_keeps_no_batch_without_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch goes with its last record, even if it is the last one of a producer that goes on."""
    begin = Rewriter.__init__

    def begin_without(self: Rewriter, **given: Any) -> None:
        begin(self, **{**given, "keep_empty": ()})

    monkeypatch.setattr(Rewriter, "__init__", begin_without)


def what_is_on_a_disk_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker alone does not ask whether it has had a topic from the store, and so the topic was deleted."""
    monkeypatch.setattr(
        store_startup, "adopt", lambda *given, **named: restoration.adopt(*given, **{**named, "has_lost_changes": True})
    )


def a_segment_is_as_old_as_its_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention by time looks at the first timestamp of a segment, not at the greatest one."""

    tell = Segments.facts

    def tell_first(self: Segments, end_offset: int) -> list[SegmentFacts]:
        facts = zip(tell(self, end_offset), self.items, strict=True)
        return [structs.replace(each, largest_timestamp_ms=segment.first_timestamp_ms) for each, segment in facts]

    monkeypatch.setattr(Segments, "facts", tell_first)


def partitions_are_given_before_they_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member gets its target at once, whoever has the partitions."""
    monkeypatch.setattr(ConsumerGroup, "is_assigned", lambda *_: False)


def an_instance_id_is_taken_from_its_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second member of KIP-848 with the same instance id replaces the first, as in the classic protocol."""
    find = ConsumerHeartbeats._find_member

    def find_member(
        self: ConsumerHeartbeats, edit: GroupEdit, request: ConsumerGroupHeartbeat, owned: object
    ) -> ConsumerMember:
        existing = edit.group.get_static(request.group_instance_id) if request.group_instance_id else None
        if existing and request.member_epoch == JOIN_EPOCH and existing.member_id != request.member_id:
            return self.replace_static(edit, existing, request.member_id)
        return find(self, edit, request, owned)  # type: ignore[arg-type]

    monkeypatch.setattr(ConsumerHeartbeats, "_find_member", find_member)


def who_was_replaced_may_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A classic group asks for a commit's generation, and not for its member."""

    def check_commit(self: ClassicGroup, request: OffsetCommit) -> None:
        self.check_generation(request.generation_or_epoch)

    monkeypatch.setattr(ClassicGroup, "check_commit", check_commit)


def who_leaves_for_a_while_is_put_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def go_away(self: ConsumerHeartbeats, edit: GroupEdit, member: ConsumerMember) -> None:
        self.remove(edit, [member.member_id])

    monkeypatch.setattr(ConsumerHeartbeats, "go_away", go_away)


def a_pattern_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that are created later do not count."""
    resolve = ConsumerHeartbeats._resolve

    def resolve_new(edit: GroupEdit, matches: TopicMatches, now_ms: int) -> bool:
        topics = {text: names for text, names in matches.topics.items() if text not in edit.group.regexes}
        for text in edit.group.regex_counts().keys() & matches.topics.keys() - topics.keys():
            edit.base.matched_with[text] = edit.group.matched_with[text] = matches.version
        return resolve(edit, structs.replace(matches, topics=topics), now_ms)

    monkeypatch.setattr(ConsumerHeartbeats, "_resolve", staticmethod(resolve_new))


def commits_name_any_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator does not ask which member of KIP-848 commits, nor in which epoch."""
    monkeypatch.setattr(ConsumerGroup, "check_commit", lambda *_: None)


def whoever_restores_a_topic_leads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first broker that starts with an empty store takes itself for the one that is in sync."""
    first_states = restored_topics._first_states

    def led(copy: TopicCopy, epochs: Mapping[int, int], broker_id: int) -> list[PartitionInfo]:
        return [
            structs.replace(info, leader=broker_id, in_sync_replicas=(broker_id,))
            for info in first_states(copy, epochs, broker_id)
        ]

    monkeypatch.setattr(restored_topics, "_first_states", led)


def a_store_that_loses_everything_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers go on with an empty store as if its topics had been deleted."""
    monkeypatch.setattr(StoreGuard, "start", lambda _: None)
    monkeypatch.setattr(StoreGuard, "is_intact", lambda _: True)


def partitions_without_a_state_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller begins while somebody empties the store: it takes partitions that have lost their states for new."""
    monkeypatch.setattr(TopicAssignment, "lost_states", lambda *_: [])


def logs_without_an_id_are_no_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder stays whose broker lost power before the topic's id was on the disk."""
    monkeypatch.setattr(StrayReplicas, "_find_topic", lambda strays, log: strays._metadata.find_by_id(log.topic_id))


def batches_are_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with transaction.partition.verification.enable=false: a late batch begins a transaction that nobody ends."""
    begin = TransactionVerifier._begin

    def begin_unverified(
        self: TransactionVerifier, name: TopicPartition, batch: FirstBatch, protocol: TransactionProtocol
    ) -> Verification | None:
        return begin(self, name, batch, protocol) if protocol.enrols else UNVERIFIED

    monkeypatch.setattr(TransactionVerifier, "_begin", begin_unverified)


def markers_of_replaced_coordinators_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that does not know that it was replaced ends a transaction of its successor."""
    check = ProducerState.check_marker

    def check_marker(self: ProducerState, marker: MarkerBatch, *, is_strict: bool) -> bool:
        newest = max(marker.coordinator_epoch, self.coordinator_epoch)
        return check(self, marker._replace(coordinator_epoch=newest), is_strict=is_strict)

    monkeypatch.setattr(ProducerState, "check_marker", check_marker)


def everything_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last stable offset is the high watermark."""
    monkeypatch.setattr(Replica, "last_stable_offset", property(lambda self: self.partition.high_watermark))


def closed_segments_have_no_aborted_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of aborted transactions is lost when the log rolls."""
    abandon = SegmentWriter.abandon

    def abandon_index(self: SegmentWriter) -> None:
        abandon(self)
        self.segment.has_aborted = False

    monkeypatch.setattr(SegmentWriter, "abandon", abandon_index)


def the_controller_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that could not be opened or deleted for a moment stays so."""
    monkeypatch.setattr(StateChanges, "_note_pending", lambda *_: None)


def only_the_youngest_transaction_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last stable offset passes an older one that is open, and falls back to it once the younger one has ended."""

    def last_stable_offset(self: OpenTransactions, high_watermark: int) -> int:
        return min(high_watermark, next(reversed(self._open.values()), high_watermark))

    monkeypatch.setattr(OpenTransactions, "last_stable_offset", last_stable_offset)


def prepared_transactions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator sends no markers of what its predecessor had prepared."""
    monkeypatch.setattr(TransactionMachine, "loaded", lambda *_: Decision())


def one_partition_with_its_marker_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction is complete with the first report of a marker."""
    written = TransactionMachine.markers_written

    def markers_written(
        self: TransactionMachine,
        name: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
        now_ms: int,
    ) -> Decision[TransactionRecord, None]:
        value = self.find(name)
        return written(self, name, producer_id, epoch, value.partitions or () if value else partitions, now_ms)

    async def send(self: MarkerSender, marker: TransactionMarker, is_wanted: Callable[[], bool]) -> bool:
        [first, *_] = self._by_leader(marker.partitions)
        await self._ask(*first, marker)
        return True

    monkeypatch.setattr(TransactionMachine, "markers_written", markers_written)
    monkeypatch.setattr(MarkerSender, "send", send)


def timeouts_do_not_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer whose transaction has timed out keeps its epoch, and goes on as if nothing had happened."""

    def abort(value: TransactionValue, *, last_epoch: int, fresh_producer_id: int, now_ms: int) -> TransactionValue:
        return prepared(value, is_commit=False, version=TV1, fresh_producer_id=fresh_producer_id, now_ms=now_ms)

    monkeypatch.setattr(transaction_machine, "fenced", abort)


def zombies_may_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was replaced ends the transaction of its successor."""
    end = transaction_machine.decide_end

    def end_of_any_epoch(value: TransactionValue, request: EndTxn) -> EndTxnOutcome:
        return end(value, structs.replace(request, producer_epoch=value.producer_epoch))

    monkeypatch.setattr(transaction_machine, "decide_end", end_of_any_epoch)


def the_epoch_stays_for_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """InitProducerId raises no epoch if there is no open transaction."""
    initialise = transaction_machine.initialise

    def initialise_again(
        value: TransactionValue | None, request: InitProducerId, fresh_producer_id: int, now_ms: int
    ) -> TransactionValue:
        following = initialise(value, request, fresh_producer_id, now_ms)
        if value is None or following.status != EMPTY:
            return following
        return dataclasses.replace(following, producer_epoch=value.producer_epoch)

    monkeypatch.setattr(transaction_machine, "initialise", initialise_again)


def offsets_of_aborted_transactions_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's offsets are committed by any marker."""
    end = PendingOffsets.end

    def commit(self: PendingOffsets, producer_id: int, *, is_commit: bool) -> list[TransactionalOffset]:
        return end(self, producer_id, is_commit=True)

    def apply(self: CommittedOffsets, producer_id: int, *, is_commit: bool, log_offset: int | None) -> Any:
        return end_transaction(self, producer_id, is_commit=True, log_offset=log_offset)

    end_transaction = CommittedOffsets.end_transaction
    monkeypatch.setattr(PendingOffsets, "end", commit)
    monkeypatch.setattr(CommittedOffsets, "end_transaction", apply)


def pending_offsets_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """OffsetFetch answers with the offset that a transaction is about to replace."""
    monkeypatch.setattr(CommittedOffsets, "_unstable_of", lambda *_: {})


def zombies_may_commit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """TxnOffsetCommit asks for no member of the group (before KIP-447)."""
    check = ClassicGroup.check_commit

    def check_commit(self: ClassicGroup, request: OffsetCommit) -> None:
        if not isinstance(request, TxnOffsetCommit):
            check(self, request)

    monkeypatch.setattr(ClassicGroup, "check_commit", check_commit)


def batches_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink does not know which batch it has committed last."""
    monkeypatch.setattr(sink_machine, "last_committed", lambda _: -1)


def losers_are_committed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """All writers of a batch that is committed count."""
    markers_of_batch = sink_machine.markers_of_batch

    def commit_all(value: TransactionValue) -> tuple[SinkMarkers, ...]:
        is_commit = value.status == PREPARE_COMMIT
        return tuple(structs.replace(each, is_commit=is_commit) for each in markers_of_batch(value))

    monkeypatch.setattr(sink_machine, "markers_of_batch", commit_all)


@pytest.mark.parametrize(
    ("break_it", "scenarios", "first"),
    [
        (logs_that_differ_are_not_cut, a_leader_that_nobody_can_tell, 1),
        (a_stale_leader_is_not_fenced, a_leader_that_nobody_can_tell, 0),
        (records_are_committed_at_once, of_kinds(FaultKind.KILL, FaultKind.PAUSE), 0),
        (a_shrunk_isr_counts_before_it_is_written, of_kinds(FaultKind.CUT_STORE, FaultKind.ISOLATE), 27),
        (whoever_is_registered_is_who_he_was, of_kinds(FaultKind.POWER), 11),
        (whoever_is_registered_is_alive, of_kinds(FaultKind.POWER_AND_STOP), 0),
        (moves_wait_for_notices, scenario_of, 84955),
        (snapshots_have_last_batches_only, scenario_of, 97907),
        (commits_count_at_once, with_members(FaultKind.KILL, FaultKind.ISOLATE), 5),
        (whoever_is_online_is_elected, of_kinds(FaultKind.KILL, FaultKind.ISOLATE), 2),
        (positions_are_of_whichever_topic_has_the_name, with_users(FaultKind.KILL, FaultKind.PAUSE), 89),
        (what_lies_below_the_first_dirty_offset_is_superseded, with_tables(FaultKind.KILL), 33),
        (what_is_appended_is_shown_as_committed, with_members(FaultKind.KILL, FaultKind.ISOLATE, FaultKind.PAUSE), 128),
        (a_gap_belongs_to_the_batch_before_it, with_read_tables(FaultKind.KILL, FaultKind.RESTART), 8),
        (a_store_is_believed_whatever_it_has_lost, one_broker(FaultKind.LOST_STORE), 0),
        (indexes_are_believed, indexes_that_are_damaged, 3),
        (a_lost_file_of_records_is_not_missed, of_kinds(FaultKind.BAD_LOG), 22),
        (
            a_gap_that_begins_below_the_recovery_point_is_compactions,
            of_kinds(FaultKind.BAD_LOG, FaultKind.RESTART),
            34,
        ),
        (commits_belong_to_whichever_topic_has_the_name, with_administrators(FaultKind.KILL), 6),
        (adopted_folders_get_the_defaults, one_broker(FaultKind.LOST_STORE), 0),
        (any_number_of_numbered_batches_is_sent_at_once, with_slow_followers(FaultKind.KILL, FaultKind.SLOW), 192),
        (a_log_starts_in_its_latest_epoch, with_users(FaultKind.KILL), 0),
        (compaction_keeps_no_batch_without_records, with_tables(FaultKind.KILL), 0),
        (what_is_on_a_disk_is_adopted, a_broker_that_comes_back_alone, 0),
        (a_segment_is_as_old_as_its_first_record, with_retention(FaultKind.KILL), 0),
        (offsets_go_with_whichever_topic_has_the_name, with_slow_commits(FaultKind.PART), 1),
        (partitions_are_given_before_they_are_given_up, with_members(FaultKind.KILL), 6),
        (an_instance_id_is_taken_from_its_member, with_members(FaultKind.KILL), 10),
        (who_was_replaced_may_commit, with_members(FaultKind.KILL), 15),
        (who_leaves_for_a_while_is_put_out, with_members(FaultKind.KILL), 29),
        (a_pattern_is_matched_once, with_patterns(FaultKind.KILL), 0),
        (commits_name_any_epoch, with_members(FaultKind.ISOLATE, FaultKind.PAUSE, FaultKind.LOSS), 34),
        (batches_are_not_verified, with_transactions(FaultKind.RESTART), 0),
        (markers_of_replaced_coordinators_count, with_transactions(FaultKind.RESTART, FaultKind.EXPIRE), 1),
        (the_controller_asks_once, of_kinds(FaultKind.DISK), 0),
        (everything_is_stable, with_transactions(FaultKind.RESTART), 0),
        (closed_segments_have_no_aborted_transactions, with_transactions(FaultKind.RESTART), 0),
        (only_the_youngest_transaction_is_waited_for, with_transactions(FaultKind.RESTART), 0),
        (prepared_transactions_are_forgotten, with_transactions(FaultKind.KILL, FaultKind.ISOLATE), 0),
        (one_partition_with_its_marker_is_enough, with_transactions(FaultKind.RESTART), 0),
        (timeouts_do_not_fence, with_transactions(FaultKind.RESTART), 7),
        (zombies_may_commit, with_transactions(FaultKind.RESTART), 3),
        (the_epoch_stays_for_the_next_process, with_transactions(FaultKind.RESTART), 0),
        (offsets_of_aborted_transactions_count, with_transactions(FaultKind.RESTART), 0),
        (pending_offsets_are_not_waited_for, with_copiers, 10),
        (zombies_may_commit_offsets, with_copiers, 7),
        (batches_are_forgotten, with_sinks(FaultKind.RESTART), 0),
        (losers_are_committed_too, with_sinks(FaultKind.RESTART), 0),
        (a_store_that_loses_everything_is_not_noticed, without_administrators(FaultKind.EMPTIED_STORE), 0),
        (partitions_without_a_state_are_new, without_administrators(FaultKind.EMPTIED_STORE, FaultKind.KILL), 137),
        (logs_without_an_id_are_no_strays, scenario_of, 70260),
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
