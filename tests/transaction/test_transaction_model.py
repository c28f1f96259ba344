"""Clients of both protocols, a network that delays and doubles, coordinators that come and go: what always holds.

The records of the log and the markers that are sent are the judges. Each rule below is one step of a client, of the
network, of the log or of time; Hypothesis chooses the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparklog.base.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    NotEnoughReplicas,
    ProducerFenced,
    RequestTimedOut,
)
from sparklog.base.ids import TopicPartition
from sparklog.transaction.events import SendMarkers
from sparklog.transaction.requests import TV1, TV2, AddPartitions, EndTxn, InitProducerId
from sparklog.transaction.states import (
    OPEN,
    PREPARE_COMMIT,
    PREPARED,
    TRANSITIONS,
    TransactionState,
)
from sparklog.transaction_topic.records import NO_PRODUCER_ID, TransactionRecord, TransactionValue
from support.runs.seeds import examples
from support.transactions.coordinator import ID, TIMEOUT_MS, SimCoordinator

pytestmark = pytest.mark.slow

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
Request = InitProducerId | AddPartitions | EndTxn
EXPECTED = (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotEnoughReplicas,
    ProducerFenced,
    RequestTimedOut,
)


Draw = Callable[..., Any]
NOW, LATE, TWICE = "arrives at once", "arrives late", "arrives at once, and again later"
fates = st.sampled_from([NOW, NOW, NOW, LATE, TWICE])


@dataclass(eq=False)
class Client:
    """One run of an application with the transactional id."""

    version: int
    producer: tuple[int, int] | None = None
    joined: set[TopicPartition] = field(default_factory=set)
    """Partitions that are known to be part of its transaction."""
    waits_for: Request | None = None


@dataclass(eq=False)
class Message:
    """A request on its way. It may arrive late, and more than once."""

    client: Client
    request: Request


class Transactional(RuleBasedStateMachine):
    @initialize(epoch=st.sampled_from([0, 32_764, 32_766]))
    def begin(self, epoch: int) -> None:
        self.it = SimCoordinator()
        self.clients: list[Client] = []
        self.messages: list[Message] = []
        self.held = 0
        self.sent: list[SendMarkers] = []
        self.given: dict[tuple[int, int], Client] = {}
        self.owners: list[tuple[int, Client]] = []
        """The client that initialized the id last, and the length of the log then."""
        if epoch:
            self.it.put(
                TransactionValue(producer_id=1, producer_epoch=epoch, timeout_ms=TIMEOUT_MS, status=0, last_update_ms=1)
            )

    @rule(data=st.data(), steps=st.integers(1, 4))
    def go_on(self, data: st.DataObject, steps: int) -> None:
        """The usual order of requests, which leads to transactions."""
        for _ in range(steps):
            can = [self._start] if len(self.clients) < 3 else []
            can += [self._recover, *[self._add] * 5, *[self._end] * 4] if self._idle() else []
            can += [self._deliver] * 2 if self.messages else []
            can += [self._write_all_markers] * 3 if self.it.markers else []
            if can:
                data.draw(st.sampled_from(can))(data.draw)

    # Clients

    def _start(self, draw: Draw) -> None:
        client = Client(draw(st.sampled_from([TV1, TV2, TV2])))
        self.clients.append(client)
        self._send(client, InitProducerId(transactional_id=ID, timeout_ms=TIMEOUT_MS), draw(fates))

    def _recover(self, draw: Draw) -> None:
        client = draw(st.sampled_from(self._idle()))
        assert client.producer is not None
        client.joined.clear()
        self._send(
            client,
            InitProducerId(
                transactional_id=ID,
                timeout_ms=TIMEOUT_MS,
                producer_id=client.producer[0],
                producer_epoch=client.producer[1],
            ),
            draw(fates),
        )

    def _add(self, draw: Draw) -> None:
        client = draw(st.sampled_from(self._idle()))
        assert client.producer is not None
        self._send(
            client,
            AddPartitions(
                transactional_id=ID,
                producer_id=client.producer[0],
                producer_epoch=client.producer[1],
                partitions=[draw(st.sampled_from(PARTITIONS))],
                transaction_version=client.version,
            ),
            draw(fates),
        )

    def _end(self, draw: Draw) -> None:
        client = draw(st.sampled_from(self._idle()))
        assert client.producer is not None
        self._send(
            client,
            EndTxn(
                transactional_id=ID,
                producer_id=client.producer[0],
                producer_epoch=client.producer[1],
                is_commit=draw(st.booleans()),
                transaction_version=client.version,
            ),
            draw(fates),
        )

    def _idle(self) -> list[Client]:
        return [client for client in self.clients if client.producer and client.waits_for is None]

    # The network

    def _send(self, client: Client, request: Request, fate: str) -> None:
        client.waits_for = request
        message = Message(client, request)
        if fate != NOW:
            self.messages.append(message)
        if fate != LATE:
            self._decide(message)

    def _deliver(self, draw: Draw) -> None:
        message = draw(st.sampled_from(self.messages[-6:]))
        if draw(st.booleans()):
            self.messages.remove(message)
        self._decide(message)

    def _decide(self, message: Message) -> None:
        it, request, client, before = self.it, message.request, message.client, len(self.it.log)
        takes_over = isinstance(request, InitProducerId) and request.producer_id == NO_PRODUCER_ID
        is_fenced = bool(self.owners) and self.owners[-1][1] is not client and not takes_over
        fresh = it.fresh(ID)

        def decide() -> Any:
            if isinstance(request, InitProducerId):
                return it.machine.init_producer_id(request, fresh, it.now_ms)
            if isinstance(request, AddPartitions):
                return it.machine.add_partitions(request, it.now_ms)
            return it.machine.end_txn(request, fresh, it.now_ms)

        try:
            it.carry_out(decide(), lambda answer: self._answered(client, request, answer))
        except KafkaError as error:
            self._answered(client, request, error)
        if takes_over and len(it.log) > before:
            self.owners.append((len(it.log), client))
        assert not is_fenced or len(it.log) == before, "a fenced producer changed something"
        it.is_broken = False
        self.held -= 1
        if it.is_holding and self.held <= 0:
            it.release()

    def _answered(self, client: Client, request: Request, answer: Any) -> None:
        error = answer if isinstance(answer, KafkaError) else getattr(answer, "error", None)
        if error is not None:
            assert isinstance(error, EXPECTED), error
            if client.waits_for is request:
                self._refused(client, request, error)
            return
        self.sent += [effect for effect in self.it.markers if effect not in self.sent]
        if not isinstance(request, AddPartitions) and answer.producer_id != NO_PRODUCER_ID:
            producer = (answer.producer_id, answer.producer_epoch)
            assert self.given.setdefault(producer, client) is client, "two clients have one id and epoch"
            assert 0 <= producer[1] < 32_767
        if isinstance(request, EndTxn) and request.transaction_version == TV2:
            self._check_end(client, request)
        if client.waits_for is request:
            self._learn(client, request, answer)

    def _refused(self, client: Client, request: Request, error: KafkaError) -> None:
        if isinstance(error, ConcurrentTransactions | RequestTimedOut | NotEnoughReplicas):
            if all(message.request is not request for message in self.messages):
                self.messages.append(Message(client, request))  # it asks again
        elif isinstance(error, ProducerFenced | InvalidProducerIdMapping):
            self.clients.remove(client)  # it ends
            client.waits_for = None
        else:
            client.waits_for = None

    def _check_end(self, client: Client, request: EndTxn) -> None:
        """Check that the markers of this transaction agree with the client's response."""
        marker = (request.producer_id, request.producer_epoch + 1)
        mine = [effect for effect in self.sent if (effect.producer_id, effect.producer_epoch) == marker]
        assert all(effect.is_commit == request.is_commit for effect in mine)
        if client.waits_for is request and client.joined:
            assert mine
            assert all(client.joined <= set(effect.partitions) for effect in mine)

    def _learn(self, client: Client, request: Request, answer: Any) -> None:
        client.waits_for = None
        if isinstance(request, AddPartitions):
            client.joined.update(partition for partition, error in answer.errors.items() if error is None)
            return
        client.joined.clear()
        if answer.producer_id != NO_PRODUCER_ID:
            client.producer = (answer.producer_id, answer.producer_epoch)

    # The log

    @rule(share=st.sampled_from([0.0, 0.5, 1.0]))
    def fail_over(self, share: float) -> None:
        it = self.it
        unfinished = _prepared(it.records()[: it.committed])
        it.fail_over(it.committed + round((len(it.log) - it.committed) * share))
        self.owners = [(end, client) for end, client in self.owners if end <= len(it.log)]
        if unfinished is not None and _prepared(it.records()) == unfinished:
            assert [effect.is_commit for effect in it.markers] == [unfinished.status == PREPARE_COMMIT]

    @rule(requests=st.integers(1, 4))
    def hold(self, requests: int) -> None:
        """Hold the commit of the next requests' records until the last of them."""
        self.it.hold()
        self.held = requests

    @rule(kind=st.sampled_from(["time out", "commit some", "break", "timers", "timers"]))
    def disturb_the_log(self, kind: str) -> None:
        it = self.it
        if kind == "time out":
            it.time_out()
        elif kind == "commit some":
            it.commit(it.committed + (len(it.log) - it.committed + 1) // 2)
        elif kind == "break":
            it.is_broken = True
        else:
            it.fire_timers()

    # Markers

    @precondition(lambda self: self.it.markers)
    @rule(data=st.data())
    def write_markers(self, data: st.DataObject) -> None:
        effect = data.draw(st.sampled_from(self.it.markers))
        self._written(effect, data.draw(st.lists(st.sampled_from(effect.partitions), min_size=1)))

    def _write_all_markers(self, draw: Draw) -> None:
        self._written(self.it.markers[0], self.it.markers[0].partitions)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def report_late(self, data: st.DataObject) -> None:
        """Repeat reports of markers written earlier, possibly before a failover."""
        before = self._open_transaction()
        effect = data.draw(st.sampled_from(self.sent))
        self._written(effect, effect.partitions)
        after = self._open_transaction()
        if before is not None and (effect.producer_id, effect.producer_epoch) != before[1]:
            assert after == before

    def _written(self, effect: SendMarkers, partitions: Sequence[TopicPartition]) -> None:
        try:
            self.it.markers_written(effect, partitions)
        except NotEnoughReplicas:
            assert self.it.is_broken

    def _open_transaction(self) -> tuple[int, tuple[int, int]] | None:
        value = self.it.machine.find(ID)
        if value is None or value.status not in PREPARED:
            return None
        return value.status, (value.producer_id, value.producer_epoch)

    # Time

    @rule(kind=st.sampled_from(["a moment", "a timeout", "a week"]))
    def pass_time(self, kind: str) -> None:
        it = self.it
        if kind == "a week" and not self.messages:  # no request travels for a week
            it.now_ms += it.config.transactional_id_expiration_ms
        it.now_ms += 1 if kind == "a moment" else TIMEOUT_MS + 1
        try:
            it.abort_timed_out()
            it.expire()
        except NotEnoughReplicas:
            assert it.is_broken

    # What always holds

    @invariant()
    def every_transaction_ends_once_and_one_way(self) -> None:
        if not hasattr(self, "it"):
            return
        values = [record.value for record in self.it.records()]
        for before, after in pairwise(values):
            if after is None:
                assert before is None or before.status not in OPEN
            elif before is not None and (before.status not in PREPARED or before != after):  # it may be written again
                assert (TransactionState(before.status), TransactionState(after.status)) in TRANSITIONS
                assert (after.producer_id, after.producer_epoch) >= (before.producer_id, before.producer_epoch)

    @invariant()
    def markers_are_sent_for_what_is_committed(self) -> None:
        if not hasattr(self, "it"):
            return
        self.sent += [effect for effect in self.it.markers if effect not in self.sent]
        decided = {
            (value.producer_id, value.producer_epoch, value.status == PREPARE_COMMIT, value.partitions)
            for record in self.it.records()[: self.it.committed]
            if (value := record.value) is not None and value.status in PREPARED
        }
        for effect in self.sent:
            assert (effect.producer_id, effect.producer_epoch, effect.is_commit, effect.partitions) in decided

    @invariant()
    def the_state_is_what_the_log_says(self) -> None:
        if hasattr(self, "it"):
            last = self.it.records()[-1].value if self.it.log else None
            assert self.it.machine.find(ID) == last

    def teardown(self) -> None:
        """Check that without failures a prepared transaction ends completely, and a new producer can work."""
        if not hasattr(self, "it"):
            return
        it = self.it
        it.is_broken = False
        it.release()
        it.now_ms += TIMEOUT_MS + 1
        for _ in range(3):
            it.fire_timers()
            it.abort_timed_out()
            it.write_markers()
        assert (it.markers, it.timers) == ([], {})
        value = it.machine.find(ID)
        assert value is None or value.status not in OPEN
        assert value is None or not value.partitions
        answer = it.init()
        me = (answer.producer_id, answer.producer_epoch)
        assert me not in self.given
        it.add("t-0", me, version=TV2)
        assert it.end(me, commit=True, version=TV2).error is None
        it.write_markers()


def _prepared(records: Sequence[TransactionRecord]) -> TransactionValue | None:
    value = records[-1].value if records else None
    return value if value is not None and value.status in PREPARED else None


TestTransactional = pytest.mark.soak(Transactional.TestCase)
TestTransactional.settings = settings(
    max_examples=examples(100),
    stateful_step_count=50,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
