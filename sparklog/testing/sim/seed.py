"""The choices that a seed makes for a simulation: the cluster, its clients, and its faults."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.testing.sim.clients import members, transactions, users
from sparklog.testing.sim.faults import Fault, FaultKind, Plan, make_plan

BOUNCES = frozenset(
    {
        FaultKind.KILL, FaultKind.POWER, FaultKind.DISK, FaultKind.DAMAGE, FaultKind.BAD_LOG, FaultKind.LOST_STORE,
        FaultKind.EMPTIED_STORE, FaultKind.POWER_AND_STOP,
    }
)  # fmt: skip
"""Faults after which a process starts from its disk without a clean shutdown before."""
ENDS_OF_ALL = (
    FaultKind.KILL,
    FaultKind.ISOLATE,
    FaultKind.EXPIRE,
    FaultKind.PAUSE,
    FaultKind.RESTART,
    FaultKind.CUT_STORE,
)
"""Faults that may leave a partition without a live in-sync replica."""
LOSSES_OF_STORES = (FaultKind.LOST_STORE, FaultKind.EMPTIED_STORE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The parameters of a run."""

    seed: int
    brokers: int = 3
    partitions: int = 2
    min_insync_replicas: int = 1
    offsets_min_insync_replicas: int = 1
    """min.insync.replicas of topics without a value of their own, such as the offsets topic."""
    lasts_s: float = 12.0
    producers: int = 3
    administers: bool = True
    flushes: bool = False
    """Whether brokers flush records before they acknowledge them. If so, power may be cut anywhere at any time."""
    members: int = 0
    """The number of members in each of two groups: one of classic members, one of KIP-848 members."""
    trims: bool = False
    """Whether the run calls DeleteRecords."""
    retention_bytes: int = -1
    retention_ms: int = -1
    """Excludes `trims` and `retention_bytes`, which may remove recent records."""
    commit_timeout_ms: int = 5_000
    """How long a coordinator waits until the replicas have its records. It retries a write that takes longer."""
    moves: bool = False
    """Whether the run moves and deletes topics without records (clients/moves.py)."""
    disks: int = 1
    is_unclean: bool = False
    """Whether the checked topic allows unclean leader election."""
    users: int = 0
    """The number of real consumers in each of two groups. If not 0, real producers and wire clients run, too."""
    bursts: bool = False
    """Whether a real producer sends many small batches of a partition at once."""
    fetch_bytes: int = 1 << 20
    """The most bytes that a follower fetches of a partition at once."""
    merges: bool = False
    """Whether the run merges closed segments (clients/merges.py)."""
    compacts: bool = False
    """Whether the run has a compacted table, and compacts the offsets topic too."""
    snapshots: bool = False
    """Whether the run takes snapshots of the offsets topic."""
    guests: bool = False
    """Whether KIP-848 members join the groups of the real client, and leave them again."""
    transacts: bool = False
    """Whether the run has producers and readers of transactions (clients/transactions.py)."""
    sinks: bool = False
    """Whether `transacts` includes a query that writes to a sink (clients/sinks.py)."""
    has_sqlite: bool = False
    """Whether the cluster store keeps its nodes in SQLite tables, as the embedded store does."""
    plan: Plan = ()

    @property
    def replication_factor(self) -> int:
        """Replicas of each partition: 3, or as many as there are brokers."""
        return min(3, self.brokers)

    @property
    def expires_by_default(self) -> bool:
        """Whether topics without a retention of their own lose their records within seconds.

        A single broker may lose its store. It must not apply this default to topics whose configuration was lost.
        """
        return self.brokers == 1

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of the brokers."""
        return {
            "replica.fetch.max.bytes": str(self.fetch_bytes),
            "offsets.commit.timeout.ms": str(self.commit_timeout_ms),
            "min.insync.replicas": str(self.offsets_min_insync_replicas),
            **({"log.flush.interval.messages": "1"} if self.flushes else {}),
            **(users.SETTINGS if self.users else {}),
            **(members.SETTINGS if self.members or self.guests or self.transacts else {}),
            **(self._transaction_settings if self.transacts else {}),
            **({"log.dirs": ",".join(f"/data/{name}" for name in "abc"[: self.disks])} if self.disks > 1 else {}),
            **({"log.retention.check.interval.ms": "1500"} if self.trims or self.expires else {}),
            **(
                {"log.retention.check.interval.ms": "500", "log.retention.ms": "1000"}
                if self.expires_by_default
                else {}
            ),
        }

    @property
    def _transaction_settings(self) -> Mapping[str, str]:
        return {
            **transactions.SETTINGS,
            "transaction.state.log.replication.factor": str(self.replication_factor),
            "transaction.state.log.min.isr": str(self.min_insync_replicas),
        }

    @property
    def topic_config(self) -> Mapping[str, str]:
        """The configuration of the checked topic."""
        return {
            "min.insync.replicas": str(self.min_insync_replicas),
            "internal.segment.bytes": "2000",
            "index.interval.bytes": "100",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": str(self.retention_bytes),
            "unclean.leader.election.enable": str(self.is_unclean).lower(),
        }

    @property
    def keeps_all(self) -> bool:
        """Whether neither DeleteRecords nor retention removes records of the checked topic."""
        return not self.trims and not self.expires

    @property
    def expires(self) -> bool:
        """Whether retention removes records of the checked topic."""
        return self.retention_bytes >= 0 or self.retention_ms >= 0

    @property
    def keeps_log_starts(self) -> bool:
        """Whether an acknowledged log start must last.

        As in Apache Kafka, the log start reaches the disk a little later, so a restart without a clean shutdown may
        lose it.
        """
        return not BOUNCES & {fault.kind for fault in self.plan}


def scenario_of(
    seed: int, *, brokers: int | None = None, lasts_s: float = 12.0, kinds: Sequence[FaultKind] = ()
) -> Scenario:
    """Return the scenario of `seed`, with faults and work for `lasts_s` seconds of virtual time.

    `brokers` and `kinds` replace the seed's choice of the number of brokers and of the kinds of faults.
    """
    chance = random.Random(f"{seed}/scenario")
    brokers = brokers or chance.choice((3, 3, 3, 3, 4, 5))
    scenario = Scenario(
        seed=seed,
        brokers=brokers,
        partitions=chance.choice((1, 2)),
        min_insync_replicas=chance.choice((1, 2)) if brokers > 2 else 1,
        lasts_s=lasts_s,
        producers=chance.choice((2, 3)),
        administers=chance.random() < 0.6,
        flushes=chance.random() < 0.3,
        plan=make_plan(chance, brokers=brokers, until_s=lasts_s, kinds=kinds),
    )
    scenario = dataclasses.replace(
        scenario,
        members=chance.choice((0, 0, 2, 3)),
        trims=chance.random() < 0.25,
        retention_bytes=3_000 if chance.random() < 0.15 else -1,
        disks=chance.choice((1, 1, 1, 2)),
        users=chance.choice((0, 2, 3)),
        fetch_bytes=chance.choice((1 << 20, 1 << 20, 200)),
        compacts=chance.random() < 0.85,
        snapshots=chance.random() < 0.5,
        guests=chance.random() < 0.4,
        has_sqlite=chance.random() < 0.3,
        commit_timeout_ms=random.Random(f"{seed}/commits").choice((5_000, 5_000, 1_000)),
        bursts=random.Random(f"{seed}/bursts").random() < 0.3,
        moves=random.Random(f"{seed}/moves").random() < 0.15,
        transacts=random.Random(f"{seed}/transacts").random() < 0.35,
        sinks=random.Random(f"{seed}/sinks").random() < 0.5,
    )
    if random.Random(f"{seed}/retention").random() < 0.08:
        scenario = dataclasses.replace(scenario, retention_ms=4_000, retention_bytes=-1, trims=False)
    if brokers > 1 and not kinds and chance.random() < 0.12:
        kinds = chance.sample(ENDS_OF_ALL, chance.randint(2, 4))
        plan = make_plan(chance, brokers=brokers, until_s=lasts_s, kinds=kinds)
        scenario = dataclasses.replace(scenario, is_unclean=True, min_insync_replicas=1, plan=plan)
    if not kinds and chance.random() < 0.06:
        plan = make_plan(chance, brokers=1, until_s=lasts_s, kinds=(chance.choice(LOSSES_OF_STORES), FaultKind.KILL))
        scenario = dataclasses.replace(
            scenario,
            brokers=1,
            min_insync_replicas=1,
            is_unclean=False,
            administers=False,  # a restored store may name the old id of a topic that was deleted and created again
            moves=False,
            plan=plan,
        )
    elif not kinds and chance.random() < 0.06:
        kinds = (chance.choice(LOSSES_OF_STORES), chance.choice((FaultKind.KILL, FaultKind.ISOLATE, FaultKind.RESTART)))
        plan = make_plan(chance, brokers=brokers, until_s=lasts_s, kinds=kinds)
        scenario = dataclasses.replace(scenario, is_unclean=False, administers=False, moves=False, plan=plan)
    elif not kinds and random.Random(f"{seed}/stops").random() < 0.5:
        scenario = dataclasses.replace(scenario, plan=tuple(map(_with_a_stop, scenario.plan)))
    if not kinds and scenario.brokers > 2 and random.Random(f"{seed}/offsets_isr").random() < 0.5:
        scenario = dataclasses.replace(scenario, offsets_min_insync_replicas=2)
    return scenario


def _with_a_stop(fault: Fault) -> Fault:
    return dataclasses.replace(fault, kind=FaultKind.POWER_AND_STOP) if fault.kind is FaultKind.POWER else fault
