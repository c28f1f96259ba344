"""Faults of a simulated cluster: a seed makes a plan of faults as plain values, and the Nemesis carries it out.

Any part of a plan is a plan too. This is how `sim.shrink` shortens the plan of a failing seed.

A broker acknowledges records before it flushes them, so a power cut can lose them. They survive only while another
in-sync replica's disk has lost nothing. The Nemesis therefore cuts power only while no other fault is under way, all
brokers are up, and all replicas of the machine's partitions are in sync. It cuts the power of one machine, or of two
if every partition keeps another in-sync replica. Then it skips all faults until these machines are in sync again, but
it may stop another broker in order at once: that broker has flushed its records. The same rules apply to damaged files
of records, except that these always affect one machine.

A killed process loses nothing, so any number may be killed at once. With `flushes`, brokers flush records before they
acknowledge them, so power may be cut at any time.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial

from sparklog.base.errors import NoNode, NotEmpty
from sparklog.cluster.store import NO_OWNER, Delete
from sparklog.testing.sim.cluster import SimCluster
from sparklog.testing.sim.network import Weather
from sparklog.testing.sim.node import SimNode

EMPTIED_WITHIN_S = 0.5
EMPTIED_AGAIN_S = 5.0
"""Shortest time between two emptyings of the store: by then all brokers have noticed the first and restarted."""
SHARE_WITHOUT_DESCRIPTORS = 0.3
"""The share of the faults of disks in which the broker has no file descriptors, though its disk works."""
STARTS_WITHIN_S = 10.0
"""How long a broker may take to start, in seconds of virtual time."""
TOLD_AFTER_S = 0.1
"""After this time, a broker has noted which of its logs have stopped."""
POWER_SETTLES_S = 30.0
"""How long a fault that loses data waits for its machine to be in sync again, in seconds."""


class FaultKind(Enum):
    """The kinds of faults. For each of them, Nemesis has a method."""

    KILL = "kill"
    POWER = "power"
    PAUSE = "pause"
    RESTART = "restart"
    ISOLATE = "isolate"
    PART = "part"
    ONE_WAY = "one way"
    EXPIRE = "expire"
    CUT_STORE = "cut store"
    CLOCK = "clock"
    LOSS = "loss"
    SLOW = "slow"
    DISK = "disk"
    LOST_ANSWER = "lost answer"
    HANG = "hang"
    DAMAGE = "damage"
    BAD_LOG = "bad log"
    DRIFT = "drift"
    DOUBLE = "double"
    LOST_STORE = "lost store"
    EMPTIED_STORE = "emptied store"
    POWER_AND_STOP = "power and stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a plan: its kind, its start in seconds of virtual time, and the brokers that it concerns."""

    at_s: float
    kind: FaultKind
    node: int
    other: int
    lasts_s: float
    size: float
    """The severity, between 0 and 1. Its meaning depends on the kind."""

    def __str__(self) -> str:
        return f"{self.at_s:.2f} s: {self.kind.value} {self.node} ({self.other}) for {self.lasts_s:.2f} s"


Plan = tuple[Fault, ...]
LOSSES = (FaultKind.POWER, FaultKind.BAD_LOG, FaultKind.POWER_AND_STOP)
"""The kinds of faults after which a disk may lack records that its broker acknowledged."""


def make_plan(chance: random.Random, *, brokers: int, until_s: float, kinds: Sequence[FaultKind] = ()) -> Plan:
    """Return a random plan. Faults may overlap; each ends before `until_s`, except for waits until brokers are in sync.

    Without `kinds`, a random choice of kinds. Kinds that make no sense for this number of brokers are left out.
    """
    if not kinds:
        kinds = [kind for kind in FaultKind if kind is not FaultKind.POWER_AND_STOP]  # see `scenario_of`
        kinds = chance.sample(kinds, chance.randint(1, 5)) if chance.random() < 0.9 else [FaultKind.POWER]
        if brokers > 1:  # a topic that was deleted would come back; scenarios without such topics ask for it
            kinds = [kind for kind in kinds if kind is not FaultKind.LOST_STORE] or [FaultKind.KILL]
        kinds = [kind for kind in kinds if kind is not FaultKind.EMPTIED_STORE] or [FaultKind.KILL]
    if brokers == 1:
        kinds = [kind for kind in kinds if kind not in (FaultKind.PART, FaultKind.ONE_WAY, FaultKind.BAD_LOG)] or [
            FaultKind.KILL
        ]
    faults, at_s = [], chance.uniform(0.5, 3)
    pace_s = chance.choice((0.3, 1.0, 3.0))
    while at_s < until_s - 2:
        lasts_s = min(chance.choice((0.2, 1.0, 4.0, 8.0)) * chance.random(), until_s - 1 - at_s)
        node = chance.randrange(brokers)
        other = (node + chance.randint(1, max(1, brokers - 1))) % brokers
        kind = chance.choice(kinds)
        faults.append(Fault(at_s=at_s, kind=kind, node=node, other=other, lasts_s=lasts_s, size=chance.random()))
        at_s += chance.expovariate(1 / pace_s)
    return tuple(faults)


class Nemesis:
    """Carries out a plan of faults on a cluster."""

    def __init__(self, cluster: SimCluster, *, flushes: bool = False) -> None:
        self._cluster = cluster
        self._flushes = flushes
        """Whether brokers flush records before they acknowledge them, so that a power cut loses no acknowledged one."""
        self._under_way = 0
        self._is_dirty = False
        """Whether a disk may have lost records, and its broker is not in sync again yet."""
        self._may_empty_s = 0.0
        """The virtual time from which on the store may be emptied again."""
        self._do: dict[FaultKind, Callable[[Fault, SimNode], Awaitable[None]]] = {
            FaultKind.KILL: self._kill,
            FaultKind.POWER: self._power,
            FaultKind.PAUSE: self._pause,
            FaultKind.RESTART: self._restart,
            FaultKind.ISOLATE: self._isolate,
            FaultKind.PART: self._part,
            FaultKind.ONE_WAY: self._one_way,
            FaultKind.EXPIRE: self._expire,
            FaultKind.CUT_STORE: self._cut_store,
            FaultKind.CLOCK: self._clock,
            FaultKind.LOSS: self._loss,
            FaultKind.SLOW: self._slow,
            FaultKind.DISK: self._disk,
            FaultKind.LOST_ANSWER: self._lost_answer,
            FaultKind.HANG: self._hang,
            FaultKind.DAMAGE: self._damage,
            FaultKind.BAD_LOG: self._bad_log,
            FaultKind.DRIFT: self._drift,
            FaultKind.DOUBLE: self._double,
            FaultKind.LOST_STORE: self._lost_store,
            FaultKind.EMPTIED_STORE: self._empty_store,
            FaultKind.POWER_AND_STOP: partial(self._power, stops_another=True),
        }

    async def run(self, plan: Sequence[Fault]) -> None:
        """Start each fault at its time. When all are over, resume, repair, reconnect and start every machine."""
        async with asyncio.TaskGroup() as group:
            for fault in plan:
                group.create_task(self._carry_out(fault))
        self._cluster.network.heal()
        for node in self._cluster.nodes.values():
            node.resume()
            node.heal_store()
            node.repair_disk()
            if not node.is_running:
                node.start()

    async def _carry_out(self, fault: Fault) -> None:
        await asyncio.sleep(max(0.0, fault.at_s - self._cluster.loop.time()))
        node = self._cluster.nodes[fault.node]
        if fault.kind is FaultKind.BAD_LOG and self._flushes:
            return  # power may be cut at any time, and a second disk could lose the same records
        if not self._flushes and (self._is_dirty or (fault.kind in LOSSES and not self._may_cut_power([node]))):
            return
        self._under_way += 1
        try:
            await self._do[fault.kind](fault, node)
        finally:
            self._under_way -= 1

    async def _kill(self, fault: Fault, node: SimNode) -> None:
        if node.is_running:
            node.kill()
            await asyncio.sleep(fault.lasts_s)
            node.start()

    async def _restart(self, fault: Fault, node: SimNode) -> None:
        if node.is_up and not node.process.is_paused:
            process = node.process
            await node.stop()
            await asyncio.sleep(fault.lasts_s)
            if node.process is process and not node.is_running:
                node.start()

    async def _pause(self, fault: Fault, node: SimNode) -> None:
        if node.is_running and not node.process.is_paused:
            process = node.process
            node.pause()
            await asyncio.sleep(fault.lasts_s)
            if node.process is process:
                node.resume()

    async def _isolate(self, fault: Fault, node: SimNode) -> None:
        others = [each for each in self._cluster.nodes.values() if each is not node]
        pairs = [pair for each in others for pair in ((node.name, each.name), (each.name, node.name))]
        await self._block(pairs, fault.lasts_s)

    async def _part(self, fault: Fault, node: SimNode) -> None:
        other = self._cluster.nodes[fault.other]
        await self._block([(node.name, other.name), (other.name, node.name)], fault.lasts_s)

    async def _one_way(self, fault: Fault, node: SimNode) -> None:
        await self._block([(node.name, self._cluster.nodes[fault.other].name)], fault.lasts_s)

    async def _block(self, pairs: Sequence[tuple[str, str]], lasts_s: float) -> None:
        self._cluster.trace.event(f"nothing passes: {', '.join(' > '.join(pair) for pair in pairs)}")
        for pair in pairs:
            self._cluster.network.block(*pair)
        await asyncio.sleep(lasts_s)
        for pair in pairs:
            self._cluster.network.unblock(*pair)
        self._cluster.trace.event("it passes again")

    async def _expire(self, _: Fault, node: SimNode) -> None:
        node.expire()

    async def _cut_store(self, fault: Fault, node: SimNode) -> None:
        node.cut_store()
        await asyncio.sleep(fault.lasts_s)
        node.heal_store()

    async def _lost_answer(self, _: Fault, node: SimNode) -> None:
        node.lose_answer()

    async def _clock(self, fault: Fault, node: SimNode) -> None:
        jump_ms = int((fault.size - 0.5) * 7_200_000)
        self._cluster.trace.event(f"{node.name}: the clock jumps by {jump_ms} ms")
        node.clock.jump(jump_ms)

    async def _loss(self, fault: Fault, _: SimNode) -> None:
        weather = Weather(delay_ms=1 + 20 * fault.size, chance_of_loss=0.2 * fault.size, chance_of_delay=0.05)
        self._cluster.trace.event(f"the network is bad: {weather}")
        self._cluster.network.change_weather(weather)
        await asyncio.sleep(fault.lasts_s)
        self._cluster.network.change_weather(Weather())

    async def _slow(self, fault: Fault, node: SimNode) -> None:
        self._cluster.trace.event(f"{node.name}: its disk is slow")
        process = node.process
        process.slow_down(10 + 1_000 * fault.size)
        await asyncio.sleep(fault.lasts_s)
        process.slow_down(1)

    async def _hang(self, fault: Fault, node: SimNode) -> None:
        self._cluster.trace.event(f"{node.name}: its disk hangs")
        node.process.hang_until(self._cluster.loop.time() + fault.lasts_s)

    async def _damage(self, fault: Fault, node: SimNode) -> None:
        if node.is_running:
            node.kill()
            await asyncio.sleep(fault.lasts_s)
            if not node.is_running:
                node.damage(fault.size)
            node.start()

    async def _bad_log(self, fault: Fault, node: SimNode) -> None:
        """Damage a file of records. If a log does not open then, move it away, so that the broker fetches it again."""
        before = self._versions(node)
        self._is_dirty = True
        node.kill()
        await asyncio.sleep(fault.lasts_s)
        if not node.is_running:
            node.damage_log(fault.size)
        node.start()
        await self._until(lambda: bool(node.offline) or self._is_in_sync_again(node, before), POWER_SETTLES_S)
        if offline := node.offline:
            node.kill()
            node.move_away(offline)
            node.start()
        self._is_dirty = not await self._until(partial(self._is_in_sync_again, node, before), POWER_SETTLES_S)

    async def _lost_store(self, fault: Fault, node: SimNode) -> None:
        """Restore an earlier state of the store, or empty it, while the broker is down.

        The store of several is emptied.
        """
        if len(self._cluster.nodes) > 1:
            await self._lose_store_of_all(fault)
            return
        before = self._cluster.tree.nodes.copy() if fault.size < 0.6 else self._cluster.empty_store
        await asyncio.sleep(fault.lasts_s / 2)
        if node.is_running:
            node.kill()
            await asyncio.sleep(fault.lasts_s / 2)
            if not node.is_running:
                self._cluster.trace.event("the store has lost what was in it" if fault.size >= 0.6 else "it went back")
                self._cluster.tree.nodes.go_back(before)
            node.start()

    async def _lose_store_of_all(self, fault: Fault) -> None:
        """Kill all brokers, empty their store, and start them one after the other, in any order."""
        nodes = list(self._cluster.nodes.values())
        for node in nodes:
            if node.is_running:
                node.kill()
        self._cluster.trace.event("the store has lost what was in it")
        self._cluster.tree.nodes.go_back(self._cluster.empty_store)
        random.Random(fault.size).shuffle(nodes)
        for node in nodes:
            await asyncio.sleep(fault.lasts_s / len(nodes))
            if not node.is_running:
                node.start()

    async def _empty_store(self, fault: Fault, _: SimNode) -> None:
        """Delete all nodes of the store while brokers run, children first, like `deleteall /` of ZooKeeper's shell."""
        tree, now = self._cluster.tree, self._cluster.loop.time()
        if now < self._may_empty_s:
            return
        self._may_empty_s = now + EMPTIED_AGAIN_S
        self._cluster.trace.event("somebody deletes all nodes of the store")
        paths = ["/"]
        for path in paths:  # it grows
            with suppress(NoNode):
                paths += [f"{path.rstrip('/')}/{name}" for name in tree.names(path)]
        for path in reversed(paths[1:]):
            with suppress(NoNode, NotEmpty):  # another broker was quicker
                tree.change([Delete(path)], NO_OWNER)
            await asyncio.sleep(EMPTIED_WITHIN_S * fault.size / len(paths))

    async def _drift(self, fault: Fault, node: SimNode) -> None:
        rate = 0.5 + fault.size
        self._cluster.trace.event(f"{node.name}: its clock goes {rate:.2f} times as fast")
        node.clock.drift(rate)
        await asyncio.sleep(fault.lasts_s)
        node.clock.drift(1.0)

    async def _double(self, fault: Fault, _: SimNode) -> None:
        self._cluster.trace.event("brokers and gRPC clients ask twice")
        self._cluster.network.change_weather(Weather(chance_of_double=0.5, chance_of_delay=0.05))
        await asyncio.sleep(fault.lasts_s)
        self._cluster.network.change_weather(Weather())

    async def _disk(self, fault: Fault, node: SimNode) -> None:
        """Let a disk fail or fill up. Then kill the broker, repair the disk and start the broker again.

        Or let it go on without a restart, when a full disk has room again, or the process has file descriptors again,
        unless it says that a log waits for a restart.
        """
        if not node.is_up or node.process.is_paused:
            return
        disks, chance = self._cluster.disks, random.Random(f"{fault.size}/disk")
        number, goes_on = (errno.EIO, False) if fault.size < 0.5 else (errno.ENOSPC, chance.random() < 0.5)
        if chance.random() < SHARE_WITHOUT_DESCRIPTORS:
            number, goes_on = errno.EMFILE, True
        node.fail_disk(disks[int(fault.size * 100) % len(disks)], number)
        await asyncio.sleep(fault.lasts_s)
        if goes_on:
            node.repair_disk()
            await asyncio.sleep(TOLD_AFTER_S)
            await self._until(lambda: node.is_up or not node.is_running, STARTS_WITHIN_S)
            if not node.needs_restart:
                return
        if node.is_running:  # also a broker that was started meanwhile without this disk
            node.kill()
        node.repair_disk()
        node.start()

    async def _power(self, fault: Fault, node: SimNode, *, stops_another: bool = False) -> None:
        nodes = [node, self._cluster.nodes[fault.other]]
        if fault.size < 0.7 or fault.other == fault.node or not (self._flushes or self._may_cut_power(nodes, 1)):
            nodes = [node]
        before = {each: self._versions(each) for each in nodes}
        self._is_dirty = not self._flushes
        await asyncio.gather(*(self._cut_power(fault, each) for each in nodes))
        others = [each for each in self._cluster.nodes.values() if each not in nodes] if stops_another else []
        await asyncio.gather(asyncio.sleep(fault.lasts_s), *(self._restart(fault, each) for each in others[:1]))
        for each in nodes:
            each.start()
        if self._is_dirty:
            await asyncio.sleep(1)
            is_well = [
                await self._until(partial(self._is_in_sync_again, *each), POWER_SETTLES_S) for each in before.items()
            ]
            self._is_dirty = not all(is_well)

    async def _cut_power(self, fault: Fault, node: SimNode) -> None:
        if 0.35 < fault.size < 0.85 and node.is_running and not node.process.is_paused:
            node.cut_power_soon(int(fault.size * 20))
            await self._until(lambda: not node.is_running, 1)
        if node.is_running:
            node.cut_power()

    def _may_cut_power(self, nodes: Sequence[SimNode], under_way: int = 0) -> bool:
        """Return whether the nodes may lose power.

        They may if no other fault is under way, all brokers are up, all replicas of the nodes' partitions are in sync,
        and each of these partitions has an in-sync replica elsewhere.
        """
        lost = {node.broker_id for node in nodes}
        states = [state for state in self._cluster.states().values() if lost & set(state["replicas"])]
        return (
            self._under_way == under_way
            and all(each.is_up for each in self._cluster.nodes.values())
            and all(
                state.get("isr") and set(state["isr"]) >= set(state["replicas"]) and set(state["isr"]) - lost
                for state in states
            )
        )

    def _versions(self, node: SimNode) -> dict[str, int]:
        return {
            str(name): state["version"]
            for name, state in self._cluster.states().items()
            if node.broker_id in state["replicas"]
        }

    def _is_in_sync_again(self, node: SimNode, before: Mapping[str, int]) -> bool:
        """Return whether the node left each partition's ISR since `before`, and is in it again.

        A partition's version grows with each change of its state, so both changes together raise it by two.
        """
        states = {str(name): state for name, state in self._cluster.states().items()}
        return node.is_up and all(
            states[name]["version"] >= version + 2 and node.broker_id in states[name]["isr"]
            for name, version in before.items()
            if name in states and node.broker_id in states[name]["replicas"]
        )

    async def _until(self, is_so: Callable[[], bool], timeout_s: float) -> bool:
        deadline = self._cluster.loop.time() + timeout_s
        while not is_so():
            if self._cluster.loop.time() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True
