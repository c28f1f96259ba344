"""The simulation can fail: with one rule broken at a time, a bounded number of seeds finds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.broker.apis import replica_fetch
from sparklog.cluster import partition_states
from sparklog.cluster.store import ANY_VERSION, Store
from sparklog.replica.messages import AlterIsr, IsrAltered
from sparklog.replica.partition import Partition
from sparklog.testing.sim_faults import Kind
from sparklog.testing.sim_run import run, scenario_of

pytestmark = pytest.mark.slow

SEEDS = 60
Break = Callable[[pytest.MonkeyPatch], None]
HARM = {"lost write", "inconsistent offset", "divergence", "duplicate", "aborted read", "sequence", "lost commit"}


def seeds_until_found(kinds: tuple[Kind, ...], **changes: Any) -> int:
    """How many seeds it takes until harm is done; SEEDS + 1: more than there were."""
    for seed in range(SEEDS):
        found = {anomaly.kind for anomaly in run(scenario_of(seed, kinds=kinds)).anomalies}
        if found & HARM:
            return seed + 1
    return SEEDS + 1


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

    for module in ISR_WRITERS:
        monkeypatch.setattr(module, "alter_isr", alter_isr)


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


ISR_WRITERS: list[Any] = [partition_states]


@pytest.mark.parametrize(
    ("break_it", "kinds"),
    [
        (logs_that_differ_are_not_cut, (Kind.PAUSE, Kind.KILL, Kind.ISOLATE)),
        (a_stale_leader_is_not_fenced, (Kind.ISOLATE, Kind.EXPIRE, Kind.PAUSE)),
        (records_are_committed_at_once, (Kind.KILL, Kind.PAUSE)),
        (a_shrunk_isr_counts_before_it_is_written, (Kind.CUT_STORE, Kind.ISOLATE)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_rule_is_found(break_it: Break, kinds: tuple[Kind, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)
    assert seeds_until_found(kinds) <= SEEDS
