"""One run of a simulated cluster, from its seed to its verdict.

    1. The brokers start, and the topics are created.
    2. Producers, consumers, groups and an administrator work while the plan of faults is carried out.
    3. All faults end. The cluster must settle within SETTLES_S of virtual time: all replicas in sync, all moves done.
    4. Consumers read to the end. The run compares the logs byte by byte up to the high watermark, and checks the
       history.

The same seed and plan give the same run in every process, with any hash seed. `Verdict.digest` proves it.
"""

from __future__ import annotations

import asyncio
import gc
import random
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from sparklog.base.ids import TopicPartition
from sparklog.broker.apis.create_topics import NewTopic
from sparklog.log.log import Log
from sparklog.records.batch import iterate_headers, read_header
from sparklog.testing.memory_fs import PowerCut
from sparklog.testing.sim.checks.checker import Anomaly, check
from sparklog.testing.sim.checks.history import FinalLog, History, Trim
from sparklog.testing.sim.checks.owners import check_owners
from sparklog.testing.sim.checks.retention import check_removals, is_overdue, watch_log_starts
from sparklog.testing.sim.checks.watermarks import watch_high_watermarks
from sparklog.testing.sim.clients import transactions
from sparklog.testing.sim.clients.members import SESSION_TIMEOUT_MS, SimMember, is_together
from sparklog.testing.sim.clients.merges import borders_of
from sparklog.testing.sim.clients.tables import TABLE, TABLE_CONFIG, check_producers, check_table, entries_of
from sparklog.testing.sim.clients.users import UserConsumer, UserGroup, UserMember
from sparklog.testing.sim.clients.workers import SCRATCH_PARTITIONS, TOPIC, Workers
from sparklog.testing.sim.clients.workload import SimConsumer, bytes_of, epochs_of, times_of, values_of
from sparklog.testing.sim.cluster import SimCluster, logs_in_trace
from sparklog.testing.sim.faults import FaultKind, Nemesis
from sparklog.testing.sim.loop import SimLoop
from sparklog.testing.sim.seed import Scenario

SETTLES_S = 90.0
LOOKUPS = 20
"""Number of offsets and timestamps of each log that are looked up at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a run: the anomalies, and the events that explain them. A good run has no anomalies."""

    scenario: Scenario
    anomalies: list[Anomaly]
    digest: str
    steps: int
    virtual_s: float
    events: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    sends: int = 0
    acknowledged: int = 0


def run(scenario: Scenario, *, settings: dict[str, str] | None = None) -> Verdict:
    """Run the scenario to its end and return the verdict. `settings` override the scenario's broker settings.

    A deadlock, an endless run or an unexpected exception in a callback is an anomaly too.
    """
    loop = SimLoop()
    with as_the_seed_says(scenario.seed):
        keys = {**scenario.settings, **(settings or {})}
        cluster = SimCluster(
            loop, scenario.seed, brokers=scenario.brokers, settings=keys, has_sqlite=scenario.has_sqlite
        )
        work = _SimRun(cluster, scenario)
        with logs_in_trace(cluster):
            try:
                loop.run(work.main())
            except Exception as error:  # noqa: BLE001 - a simulated client that fails is a finding too
                cluster.report("simulation", repr(error), error)
        for context in loop.errors:
            if isinstance(context.get("exception"), PowerCut):
                continue  # the machine has lost its power in the middle of a callback
            cluster.report("exception", f"{context['message']}: {context.get('exception')!r}", context.get("exception"))
    sends = [operation for operation in work.history.operations if type(operation.action).__name__ == "Send"]
    verdict = Verdict(
        scenario=scenario,
        anomalies=[*cluster.findings, *work.anomalies],
        digest=cluster.trace.digest,
        steps=loop.steps,
        virtual_s=loop.time(),
        events=list(cluster.trace.events()),
        last=cluster.trace.last(40),
        sends=len(sends),
        acknowledged=sum(operation.is_ok for operation in sends),
    )
    del work, cluster, loop
    return verdict


@contextmanager
def as_the_seed_says(seed: int) -> Iterator[None]:
    """Return a context in which only the seed decides what happens.

    New UUIDs and the global `random` depend on the seed. The garbage collector is off, as it would run finalizers at
    unpredictable moments.
    """
    chance = random.Random(f"{seed}/identifiers")
    real, uuid.uuid4 = uuid.uuid4, lambda: uuid.UUID(int=chance.getrandbits(128), version=4)
    state = random.getstate()
    random.seed(f"{seed}/global")
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # killed processes leave coroutines unawaited
            yield
    finally:
        uuid.uuid4 = real
        random.setstate(state)
        gc.enable()


class _SimRun:
    def __init__(self, cluster: SimCluster, scenario: Scenario) -> None:
        self.history = History(cluster.loop.time)
        self.anomalies: list[Anomaly] = []
        self._cluster = cluster
        self._scenario = scenario
        self._is_over = asyncio.Event()
        self._workers = Workers(cluster, scenario, self.history)
        self._partitions = self._workers.partitions
        self._tables = self._workers.tables
        self._compacted = self._workers.compacted

    async def main(self) -> None:
        cluster, scenario = self._cluster, self._scenario
        await cluster.start()
        if cluster.findings or not await self._make_topics():
            return
        watching = [asyncio.create_task(watch) for watch in (cluster.watch_leaders(), watch_high_watermarks(cluster))]
        if scenario.retention_ms >= 0:
            watching.append(asyncio.create_task(watch_log_starts(cluster, self._partitions, self.history)))
        tasks = [asyncio.create_task(work) for work in self._workers.work(self._is_over)]
        began = cluster.loop.time()
        await Nemesis(cluster, flushes=scenario.flushes).run(scenario.plan)
        await asyncio.sleep(max(0.5, began + scenario.lasts_s - cluster.loop.time()))
        self._is_over.set()
        await asyncio.gather(*tasks)
        cluster.trace.event("all is healed, and nobody asks for anything any more")
        if not await cluster.wait_until(
            self._is_settled, SETTLES_S, "all replicas are in sync, and nothing is under way"
        ):
            self._say_what_is_not_settled()
        for members in self._workers.members:
            await self._come_together(members)
        for group, users in self._workers.user_groups:
            await self._see_all(group, users)
        await self._read_to_the_end()
        final = {name: self._final_log(name) for name in self._partitions}
        drained = frozenset((consumer.name, consumer.partition) for consumer in self._workers.readers)
        there = {name: log for name, log in final.items() if log}
        self.anomalies += check(self.history, there, drained=drained)
        if scenario.retention_ms >= 0:
            self.anomalies += check_removals(self.history, there, scenario.retention_ms)
            await cluster.wait_until(self._has_expired, SETTLES_S, "what is older than retention.ms has been removed")
        is_doubled = any(fault.kind is FaultKind.DOUBLE for fault in self._scenario.plan)
        self.anomalies += check_owners(self.history, SESSION_TIMEOUT_MS / 1000, is_doubled=is_doubled)
        await self._compare_segments()
        self._compare_replicas()
        self._look_up_offsets()
        self._look_up_times()
        self._look_at_beginnings()
        self._look_at_tables()
        self._look_at_the_store()
        if self._workers.transactions:
            self.anomalies += await self._workers.transactions.check()
        self.anomalies += [anomaly async for anomaly in self._workers.commits.check()]
        self.anomalies += self._workers.moved_topics.check()
        for task in watching:
            task.cancel()

    async def _make_topics(self) -> bool:
        made = await self._make_topic(TOPIC, self._scenario.topic_config)
        if made and self._scenario.compacts:
            minimum = {"min.insync.replicas": str(self._scenario.min_insync_replicas)}
            made = await self._make_topic(TABLE, {**TABLE_CONFIG, **minimum})
        if self._scenario.transacts:
            minimum = {"min.insync.replicas": str(self._scenario.min_insync_replicas)}
            for topic in (*transactions.TOPICS, transactions.COPIES):
                config = {**transactions.TOPIC_CONFIG, **minimum}
                made = made and await self._make_topic(topic, config, partitions=transactions.PARTITIONS)
        return made

    async def _make_topic(self, name: str, configs: Mapping[str, str], *, partitions: int | None = None) -> bool:
        scenario = self._scenario
        topic = NewTopic(
            name=name,
            partitions=partitions or scenario.partitions,
            replication_factor=scenario.replication_factor,
            configs=configs,
        )
        for _ in range(20):
            if await self._workers.admin.create(topic):
                return True
            await asyncio.sleep(0.5)
        self._cluster.report("liveness", f"the topic {name} cannot be created")
        return False

    # Checks after the faults are over

    def _is_settled(self) -> bool:
        return next(self._unsettled(), None) is None

    def _unsettled(self) -> Iterator[str]:
        """Yield a text for each part of the cluster that has not settled yet."""
        cluster = self._cluster
        states = cluster.states()
        yield from (f"{node.name} is not up" for node in cluster.nodes.values() if not node.is_up)
        for name, state in states.items():
            if state.get("leader", -1) < 0 or sorted(state["isr"]) != sorted(state["replicas"]):
                yield f"{name}: {state}"
            elif state["is_moving"]:
                yield f"{name} is being moved"
        if cluster.tree.find("/admin/delete_topics"):
            yield from (f"{topic} is being deleted" for topic in cluster.tree.names("/admin/delete_topics"))
        gone = self._workers.moved_topics.gone
        for node in cluster.nodes.values():
            assigned = {name for name, state in states.items() if node.broker_id in state["replicas"]}
            there = {log.partition for log in node.broker.services.logs} if node.broker and node.is_up else assigned
            there = {name for name in there if name.topic not in gone}
            if there != assigned:
                yield (
                    f"{node.name} has logs without being a replica: {_names_text(there - assigned)}; "
                    f"it lacks logs: {_names_text(assigned - there)}"
                )

    def _say_what_is_not_settled(self) -> None:
        for text in self._unsettled():
            self._cluster.report("unsettled", text)

    async def _come_together(self, members: Sequence[SimMember]) -> None:
        """Check that each partition gets exactly one member. Then stop the members, and read the committed offsets."""
        tasks = [asyncio.create_task(member.settle()) for member in members]
        name = members[0].group.name
        existing = list(self._cluster.states())
        if not await self._cluster.wait_until(lambda: is_together(members, existing), SETTLES_S, f"{name} is balanced"):
            owned = {member.client.name: (member.epoch, member.owned) for member in members}
            self._cluster.report("unsettled", f"{name}: {owned}")
        for task in tasks:
            task.cancel()
        for partition in self._partitions:
            await self._read_commit(name, partition)

    async def _read_commit(self, group: str, partition: TopicPartition) -> None:
        reader = self._workers.reader_of_commits(group, partition)
        for _ in range(50):
            if await reader.read(is_current=True):
                return
        self._cluster.report("liveness", f"the committed offset of {group} for {partition} cannot be read")

    async def _read_to_the_end(self) -> None:
        deadline = self._cluster.loop.time() + SETTLES_S
        for consumer in self._workers.readers:

            def is_at_end(consumer: SimConsumer | UserConsumer = consumer) -> bool:
                return consumer.position >= max(0, self._log_end(consumer.partition))

            if not await consumer.drain(is_at_end, deadline):
                end = self._log_end(consumer.partition)
                self._cluster.report(
                    "liveness",
                    f"{consumer.name} is at {consumer.position} of {consumer.partition}, which ends at {end}",
                )
        await self._read_commit("group", self._partitions[0])

    async def _see_all(self, group: UserGroup, users: Sequence[UserMember]) -> None:
        """Check that the members own all partitions, and that the group has received all records that are left.

        The second check needs a scenario that deletes no records and a run without unclean elections.
        """
        tasks = [asyncio.create_task(user.settle()) for user in users]
        partitions = [name for name in self._cluster.states() if group.reads(name.topic)]

        def is_shared_out() -> bool:
            return sorted(name for user in users for name in user.owned) == partitions

        if not await self._cluster.wait_until(is_shared_out, SETTLES_S, f"{group.name} owns all its partitions"):
            self._cluster.report("unsettled", f"{group.name}: { {user.name: user.owned for user in users} }")
        there = {name: self._values(name) for name in partitions}

        def unseen() -> list[str]:
            return [text for name, values in there.items() for text in group.unseen(name, values)]

        is_kept = self._scenario.keeps_all and not self._cluster.tree.unclean
        if is_kept and not await self._cluster.wait_until(
            lambda: not unseen(), SETTLES_S, f"{group.name} has received all records"
        ):
            self.anomalies += [Anomaly("unseen by group", f"{group.name} never received {text}") for text in unseen()]
        for task in tasks:
            task.cancel()

    def _values(self, name: TopicPartition) -> dict[int, str]:
        log = self._log_of(name, self._leader_of(name))
        return values_of(bytes_of(log, log.log_start_offset, log.log_end_offset)) if log else {}

    def _log_end(self, name: TopicPartition) -> int:
        log = self._log_of(name, self._leader_of(name))
        return log.log_end_offset if log else 0

    def _leader_of(self, name: TopicPartition) -> int:
        return int(self._cluster.states().get(name, {}).get("leader", -1))

    def _log_of(self, name: TopicPartition, broker_id: int) -> Log | None:
        node = self._cluster.nodes.get(broker_id)
        return node.find_log(name) if node and node.is_up else None

    def _final_log(self, name: TopicPartition) -> FinalLog | None:
        log = self._log_of(name, self._leader_of(name))
        if log is None:
            self._cluster.report("liveness", f"{name} has no leader at the end")
            return None
        data = bytes_of(log, log.log_start_offset, log.log_end_offset)
        return FinalLog(
            log_start_offset=log.log_start_offset,
            records=values_of(data, log.log_start_offset),
            times=times_of(data),
            epochs=epochs_of(data),
            unclean=tuple(self._cluster.tree.unclean.get(name, ())),
            keeps_start=self._scenario.keeps_log_starts,
            expires=self._scenario.expires,
        )

    def _look_at_the_store(self) -> None:
        for name, elections in self._cluster.tree.unclean.items():
            if not (self._scenario.is_unclean and name in self._partitions):
                self.anomalies.append(Anomaly("unclean election", f"{name}: {elections}"))
        for name, broker in sorted(self._cluster.tree.outsiders):
            self.anomalies.append(Anomaly("no replica", f"{name}: broker {broker} was in the ISR, but no replica"))

    def _has_expired(self) -> bool:
        return not any(
            is_overdue(log, self._cluster.nodes[leader].clock.time_ms(), self._scenario.retention_ms)
            for name in self._partitions
            if (log := self._log_of(name, leader := self._leader_of(name)))
        )

    async def _compare_segments(self) -> None:
        """Check that all in-sync replicas get the same closed segments, after replacements on each of them."""
        replaced = [*(self._partitions if self._scenario.merges else ()), *self._compacted]
        for name in (each for each in replaced if each in self._cluster.states()):
            if not await self._cluster.wait_until(partial(self._are_alike, name), SETTLES_S, f"{name}: equal segments"):
                found = {broker: log.segments for broker, log in self._logs_in_sync(name).items()}
                self.anomalies.append(Anomaly("divergence", f"the segments of {name} differ: {found}"))

    def _are_alike(self, name: TopicPartition) -> bool:
        logs = self._logs_in_sync(name).values()
        start = max((log.first_base_offset for log in logs), default=0)
        return len({tuple(borders_of(log, start)) for log in logs}) == 1

    def _look_up_offsets(self) -> None:
        """Check, for random offsets, that a read begins with the batch that holds the offset, or with the next one."""
        chance = self._cluster.stream("offsets")
        for name in self._cluster.states():
            for broker, log in self._logs_in_sync(name).items():
                start, end = log.log_start_offset, log.log_end_offset
                sound = [header for _, header in iterate_headers(bytes_of(log, start, end))]
                for offset in chance.sample(range(start, end), min(LOOKUPS, end - start)):
                    data = log.read(offset, 1, max_offset=end).read()
                    found = read_header(data) if data else None
                    if found != next((each for each in sound if each.last_offset >= offset), None):
                        self.anomalies.append(
                            Anomaly("wrong lookup", f"{name}: broker {broker} reads {found} from offset {offset} on")
                        )

    def _look_up_times(self) -> None:
        """Check, for random timestamps, that a lookup finds the first record of that time or later."""
        chance = self._cluster.stream("times")
        for name in self._partitions:
            for broker, log in self._logs_in_sync(name).items():
                start = log.log_start_offset
                data = bytes_of(log, start, log.log_end_offset)
                times = {offset: time for offset, time in times_of(data).items() if offset >= start}
                for time in chance.sample(list(times.values()), min(LOOKUPS, len(times))):
                    found = log.offset_for_timestamp(time)
                    first = next(offset for offset, each in times.items() if each >= time)
                    if found is None or found.offset != first:
                        text = f"{name}: broker {broker} finds {found} for {time}, not {first}"
                        self.anomalies.append(Anomaly("wrong lookup", text))

    def _look_at_beginnings(self) -> None:
        """Check that no log starts above the highest offset that a DeleteRecords request has named.

        Partitions with retention or with an unclean election are left out: their logs may start later.
        """
        may_expire = set(self._partitions) if self._scenario.expires else set()
        if self._scenario.expires_by_default:
            may_expire |= set(SCRATCH_PARTITIONS)
        for name in self._cluster.states().keys() - may_expire - self._cluster.tree.unclean.keys():
            asked = max((trim.before_offset for _, trim in self.history.of(Trim) if trim.partition == name), default=0)
            for broker, log in self._logs_in_sync(name).items():
                if log.log_start_offset > asked:
                    text = f"{name} starts at {log.log_start_offset} on {broker}; DeleteRecords named {asked} at most"
                    self.anomalies.append(Anomaly("lost beginning", text))

    def _look_at_tables(self) -> None:
        for name in self._tables:
            log = self._log_of(name, self._leader_of(name))
            if log and not self._cluster.tree.unclean.get(name):
                entries = list(entries_of(bytes_of(log, log.log_start_offset, log.log_end_offset)))
                self.anomalies += check_table(self.history, name, entries)
            for replica in self._logs_in_sync(name).values():
                self.anomalies += check_producers(replica)

    def _logs_in_sync(self, name: TopicPartition) -> dict[int, Log]:
        brokers = self._cluster.states().get(name, {}).get("isr", ())
        return {broker: log for broker in brokers if (log := self._log_of(name, broker))}

    def _compare_replicas(self) -> None:
        """Check that all in-sync replicas have the same bytes, from their highest log start to the high watermark.

        For a compacted log, only closed segments count. A replica that truncates its log within a compacted segment
        appends to that segment, and the other replicas take it over only once it is closed.
        """
        for name, state in self._cluster.states().items():
            node = self._cluster.nodes.get(state.get("leader", -1))
            leader = node.broker.services.replicas.find(name) if node and node.broker and node.is_up else None
            if leader is None:
                continue
            end = leader.partition.high_watermark
            logs = {broker: log for broker in state["isr"] if (log := self._log_of(name, broker))}
            start = max((log.log_start_offset for log in logs.values()), default=0)
            if name in self._compacted:
                end = min((end, *(log.segments[-1].base_offset for log in logs.values())))
            if len({bytes_of(log, start, end) for log in logs.values()}) > 1:
                ends = {broker: (log.log_end_offset, log.epochs) for broker, log in logs.items()}
                self.anomalies.append(Anomaly("divergence", f"replicas of {name} differ below {end}: {ends}"))


def _names_text(names: set[TopicPartition]) -> str:
    return ", ".join(str(name) for name in sorted(names)) or "nothing"
