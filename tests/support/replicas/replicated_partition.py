"""A partition on three brokers, a store and a controller, with every message in the air until it is delivered.

The brokers' knowledge is the real `Partition`; the rest is as small as it can be. Logs are lists of (epoch, record).
Brokers may be killed and started, be taken for dead while they live, and go on believing that they lead. Messages to a
broker from the controller keep their order; fetches, their answers and ISR writes do not.

    committed      what any leader has ever shown to be below its high watermark: by offset, for good
    acknowledged   records whose producer was told that they are replicated
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.replica.messages import NO_LEADER, AlterIsr, AlterIsrResult, LeaderAndIsrPartitionState
from sparklog.replica.partition import Effects, Partition

NAME = TopicPartition("t", 0)
TOPIC_ID = UUID(int=1)
MAX_LAG_MS = 10
MIN_INSYNC = 2
CONTROLLER_EPOCH = 1
BROKERS = (1, 2, 3)
Record = tuple[int, int]


@dataclass
class Fetch:
    """On its way to the leader."""

    follower: int
    broker_epoch: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int


@dataclass
class Answer:
    """On its way back."""

    to: Fetch
    records: list[Record]
    high_watermark: int
    diverging: tuple[int, int] | None
    """The leader's last epoch that the follower may have too, and where it ends."""


@dataclass
class Broker:
    id: int
    epoch: int = 0
    is_up: bool = False
    log: list[Record] = field(default_factory=list)
    checkpoint: int = 0
    partition: Partition | None = None
    inbox: list[tuple[LeaderAndIsrPartitionState, dict[int, int]]] = field(default_factory=list)
    """LeaderAndIsr, and the live brokers' epochs as UpdateMetadata has them."""
    known_epochs: dict[int, int] = field(default_factory=dict)
    writes: list[AlterIsr] = field(default_factory=list)
    shown: tuple[int, int] = (-1, 0)
    """Since when it leads, and the greatest high watermark that it has had in that time."""


def end_of_epoch(log: list[Record], epoch: int) -> tuple[int, int]:
    """The greatest epoch of the log at or below `epoch`, and where it ends."""
    below = [at for at, (found, _) in enumerate(log) if found <= epoch]
    return (log[below[-1]][0], below[-1] + 1) if below else (-1, 0)


class Cluster:
    def __init__(self) -> None:
        self.brokers = {each: Broker(each) for each in BROKERS}
        self.now_ms = 0
        self.epochs = 0
        self.records = 0
        self.live: dict[int, int] = {}
        self.leader, self.leader_epoch, self.isr, self.version = NO_LEADER, 0, BROKERS, 0
        self.fetches: list[Fetch] = []
        self.answers: list[Answer] = []
        self.appended: list[tuple[int, int, int, int]] = []
        """Waiting for their acknowledgement: broker, led since, offset, record."""
        self.committed: list[Record] = []
        self.acknowledged: dict[int, int] = {}
        for each in BROKERS:
            self.start(each, 1 << 30)
            self.notice(each)
        for each in BROKERS:
            self.deliver_all(each)

    # The world

    def registered(self, broker_id: int) -> int | None:
        broker = self.brokers[broker_id]
        return broker.epoch if broker.is_up else None

    def kill(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        broker.is_up, broker.partition = False, None
        broker.inbox.clear()
        broker.writes.clear()

    def start(self, broker_id: int, high_watermark: int) -> None:
        """`high_watermark`: the checkpoint has that, or what it was at the death if that is less."""
        self.epochs += 1
        broker = self.brokers[broker_id]
        broker.epoch, broker.is_up = self.epochs, True
        broker.known_epochs = {}
        broker.shown = (-1, 0)
        broker.partition = Partition(
            NAME,
            broker_id=broker_id,
            log_end_offset=len(broker.log),
            high_watermark=min(high_watermark, broker.checkpoint),
        )

    def append(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        partition = broker.partition
        if partition is None or not partition.is_leader:
            return
        try:
            partition.check_in_sync(-1, MIN_INSYNC)
        except KafkaError:
            return
        self.records += 1
        broker.log.append((partition.leader_epoch, self.records))
        self.appended.append((broker_id, partition.led_since, len(broker.log) - 1, self.records))
        partition.log_appended(len(broker.log))

    # Replication

    def send_fetch(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        partition = broker.partition
        if partition is None or partition.is_leader or partition.leader == NO_LEADER:
            return
        last_epoch = broker.log[-1][0] if broker.log else -1
        self.fetches.append(
            Fetch(broker_id, broker.epoch, partition.leader, partition.leader_epoch, len(broker.log), last_epoch)
        )

    def deliver_fetch(self, fetch: Fetch) -> None:
        leader = self.brokers[fetch.leader]
        partition = leader.partition
        if partition is None or not partition.is_leader or partition.leader_epoch != fetch.leader_epoch:
            return
        epoch, end = end_of_epoch(leader.log, fetch.last_epoch)
        if fetch.offset and (epoch < fetch.last_epoch or end < fetch.offset):
            self.answers.append(Answer(fetch, [], partition.high_watermark, (epoch, end)))
            return
        if leader.known_epochs.get(fetch.follower) == fetch.broker_epoch:
            effects = partition.follower_fetched(
                fetch.follower,
                broker_epoch=fetch.broker_epoch,
                fetch_offset=fetch.offset,
                log_start_offset=0,
                now_ms=self.now_ms,
            )
            self.carry_out(leader, effects)
        records = leader.log[fetch.offset : fetch.offset + 1]
        self.answers.append(Answer(fetch, records, partition.high_watermark, None))

    def deliver_answer(self, answer: Answer) -> None:
        fetch = answer.to
        broker = self.brokers[fetch.follower]
        partition = broker.partition
        if partition is None or partition.is_leader or broker.epoch != fetch.broker_epoch:
            return
        if (partition.leader, partition.leader_epoch) != (fetch.leader, fetch.leader_epoch):
            return
        if len(broker.log) != fetch.offset:
            return
        if answer.diverging:
            epoch, end = answer.diverging
            del broker.log[min(end, end_of_epoch(broker.log, epoch)[1]) :]
            partition.truncated(len(broker.log))
            return
        broker.log += answer.records
        partition.followed(len(broker.log), answer.high_watermark)

    def carry_out(self, broker: Broker, effects: Effects) -> None:
        if effects.alter:
            broker.writes.append(effects.alter)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for broker in self.brokers.values():
            if broker.partition:
                self.carry_out(broker, broker.partition.shrink_isr(self.now_ms, MAX_LAG_MS))

    # The store

    def write_isr(self, broker_id: int, *, is_written: bool, is_answered: bool) -> None:
        """What happens to what a leader wants to write: `alter_isr` of cluster/partition_states.py."""
        broker = self.brokers[broker_id]
        if broker.partition is None or not broker.writes:
            return
        change = broker.writes[0]
        if broker.partition.pending is not change:
            broker.writes.pop(0)
            return
        if any(self.registered(each) != epoch for each, epoch in change.joining.items()):
            broker.writes[0:1] = [self._altered(broker.partition.isr_refused(change))]
            return
        if is_written and self.version == change.partition_epoch:
            self.isr, self.version = change.isr, self.version + 1
        if not is_answered:
            return  # it is tried again
        if self.version != change.partition_epoch and (self.leader, self.leader_epoch) == (
            change.leader,
            change.leader_epoch,
        ):
            broker.writes.pop(0)
            altered = AlterIsrResult(isr=self.isr, partition_epoch=self.version)
            broker.partition.isr_altered(change, altered, self.now_ms)

    def _altered(self, effects: Effects) -> AlterIsr:
        assert effects.alter
        return effects.alter

    # The controller

    def notice(self, broker_id: int) -> None:
        """See whether a broker is there, as the store says now."""
        before, now = self.live.get(broker_id), self.registered(broker_id)
        if before is not None and before != now:
            self.take_for_dead(broker_id)
        if now is not None and before != now:
            self.live[broker_id] = now
            self.elect()
            self.tell_all()

    def take_for_dead(self, broker_id: int) -> None:
        if self.live.pop(broker_id, None) is None:
            return
        isr = tuple(each for each in self.isr if each != broker_id) or self.isr
        leader = NO_LEADER if self.leader == broker_id else self.leader
        if (isr, leader) != (self.isr, self.leader):
            self.isr, self.leader = isr, leader
            self.leader_epoch, self.version = self.leader_epoch + 1, self.version + 1
        self.elect()
        self.tell_all()

    def elect(self, leader: int | None = None) -> None:
        """Whoever is in the ISR and alive, where there is no leader; or `leader`, if it may."""
        wanted = [each for each in self.isr if each in self.live and leader in (None, each)]
        if wanted and (leader is not None or self.leader == NO_LEADER) and wanted[0] != self.leader:
            self.leader = wanted[0]
            self.leader_epoch, self.version = self.leader_epoch + 1, self.version + 1

    def tell_all(self) -> None:
        state = LeaderAndIsrPartitionState(
            name=NAME, topic_id=TOPIC_ID, leader=self.leader, leader_epoch=self.leader_epoch, isr=self.isr,
            replicas=BROKERS, partition_epoch=self.version,
        )  # fmt: skip
        for each in self.live:
            if self.brokers[each].is_up:
                self.brokers[each].inbox.append((state, dict(self.live)))

    def deliver(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if broker.partition is None or not broker.inbox:
            return
        state, broker.known_epochs = broker.inbox.pop(0)
        if state.leader_epoch < broker.partition.leader_epoch:
            return
        if state.leader == broker_id:
            broker.partition.become_leader(state, CONTROLLER_EPOCH, log_end_offset=len(broker.log), now_ms=self.now_ms)
        else:
            broker.partition.become_follower(state, CONTROLLER_EPOCH)

    def deliver_all(self, broker_id: int) -> None:
        while self.brokers[broker_id].inbox:
            self.deliver(broker_id)

    def settle(self) -> None:
        """No more faults: everybody is up, everything is delivered, followers fetch, time passes."""
        for each in BROKERS:
            if not self.brokers[each].is_up:
                self.start(each, 1 << 30)
            self.notice(each)
        for _ in range(2 * self.records + 60):
            for each in BROKERS:
                self.deliver_all(each)
                self.send_fetch(each)
                self.write_isr(each, is_written=True, is_answered=True)
            for fetch in self.take(self.fetches):
                self.deliver_fetch(fetch)
            for answer in self.take(self.answers):
                self.deliver_answer(answer)
            self.pass_time(1)

    def take(self, messages: list) -> list:
        taken = messages[:]
        messages.clear()
        return taken

    # What must hold

    def check(self) -> None:
        for broker in self.brokers.values():
            if broker.partition:
                self._check_broker(broker, broker.partition)
        self._acknowledge()
        if self.leader != NO_LEADER:  # whoever leads by the store, or may be elected next, has all that was committed
            for each in self.isr:
                log = self.brokers[each].log
                assert log[: len(self.committed)] == self.committed, f"{each} is in the ISR and lacks committed records"

    def _check_broker(self, broker: Broker, partition: Partition) -> None:
        high_watermark = partition.high_watermark
        assert partition.log_end_offset == len(broker.log)
        assert high_watermark <= len(broker.log)
        broker.checkpoint = high_watermark
        if not partition.is_leader:
            return
        since, greatest = broker.shown
        assert partition.led_since != since or high_watermark >= greatest, "a leader's high watermark moved back"
        broker.shown = (partition.led_since, high_watermark)
        self._check_committed(broker.log[:high_watermark])

    def _check_committed(self, shown: list[Record]) -> None:
        common = min(len(shown), len(self.committed))
        assert shown[:common] == self.committed[:common], "two leaders have shown different records at one offset"
        if len(shown) > len(self.committed):
            self.committed = shown

    def _acknowledge(self) -> None:
        waiting = []
        for broker_id, led_since, offset, record in self.appended:
            partition = self.brokers[broker_id].partition
            if partition is None:
                continue
            try:
                if not partition.is_replicated(offset, led_since, MIN_INSYNC):
                    waiting.append((broker_id, led_since, offset, record))
                    continue
            except KafkaError:
                continue
            self.acknowledged[offset] = record
        self.appended = waiting
        for offset, record in self.acknowledged.items():
            assert self.committed[offset][1] == record, "an acknowledged record is gone"
