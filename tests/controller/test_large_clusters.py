"""A controller with more topics than fit into one request: each broker learns of all of them, and of nothing else."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.ids import TopicPartition
from sparklog.cluster.messages import UpdateMetadata
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo, ReplicaAssignment
from sparklog.cluster.partition_states import Leadership
from sparklog.controller import outbox
from sparklog.controller.context import ControllerContext, PartitionAndReplica
from sparklog.controller.outbox import Outbox
from sparklog.controller.states import ReplicaState
from sparklog.replica.messages import LeaderAndIsr, StopReplica
from sparklog.server.grpc.replication_calls import CALLS

BROKER = 1
CALL_OF = {call.request: call for call in CALLS}
OVERRIDES = {"cleanup.policy": "compact", "retention.ms": "-1", "min.insync.replicas": "2"}


class Told:
    """An outbox, and the requests that it sends."""

    def __init__(self, topics: dict[str, int], *, first_number: int = 1) -> None:
        self.context = ControllerContext(epoch=1, epoch_version=1)
        self.context.brokers = {
            number: BrokerInfo(
                broker_id=number, grpc_address="b:1", listeners={}, rack="", version="", epoch=number
            )
            for number in (BROKER, 2)
        }  # fmt: skip
        self.numbers = count(1)
        for topic, partitions in topics.items():
            self.add(topic, partitions)
        self.context.set_overrides(dict.fromkeys(topics, OVERRIDES))
        self.sent: list[Any] = []
        self.outbox = Outbox(self.context, 2, self._send, count(first_number))

    def add(self, topic: str, partitions: int) -> None:
        replicas = [ReplicaAssignment(replicas=(BROKER, 2))] * partitions
        self.context.add_topic(topic, UUID(int=next(self.numbers)), replicas)
        for number in range(partitions):
            name = TopicPartition(topic, number)
            self.context.leadership[name] = Leadership(
                leader=BROKER, leader_epoch=300, isr=(BROKER, 2), controller_epoch=1, version=300
            )
            self.context.replica_states[PartitionAndReplica(name, BROKER)] = ReplicaState.ONLINE

    def _send(self, broker: int, request: Any) -> None:
        if broker == BROKER:
            self.sent.append(request)

    def whole_state(self) -> list[Any]:
        """Return the requests to a broker that registers."""
        self.sent.clear()
        self.outbox.send_full_state(BROKER)
        self.outbox.flush()
        return list(self.sent)

    def full_update(self) -> list[UpdateMetadata]:
        """Return its parts."""
        updates = [each for each in self.whole_state() if isinstance(each, UpdateMetadata)]
        return [each for each in updates if each.is_full or each.full_since]

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self.context.leadership)


@pytest.mark.slow
def test_thirty_thousand_topics_come_in_requests_that_a_broker_takes() -> None:
    told = Told({f"{number:05d}".ljust(249, "n"): 1 for number in range(30_000)})
    requests = told.whole_state()
    assert Counter(map(type, requests)).keys() == {LeaderAndIsr, UpdateMetadata}
    metadata, led = MetadataCache(), []
    for request in requests:
        call = CALL_OF[type(request)]
        received = call.decode_request(call.encode_request(request))
        if isinstance(received, UpdateMetadata):
            metadata.update(received)
        else:
            led += [state.name for state in received.partitions]
    assert led == told.partitions
    assert [topic.name for topic in metadata] == sorted(told.context.topic_ids)
    assert metadata.is_complete

    for name in told.partitions:
        told.outbox.stop_replica(PartitionAndReplica(name, BROKER), delete=True)
    told.sent.clear()
    told.outbox.flush()
    stopped = []
    for request in told.sent:
        stopped += CALL_OF[StopReplica].decode_request(CALL_OF[StopReplica].encode_request(request)).partitions
    assert [stop.name for stop in stopped] == told.partitions
    assert all(stop.delete for stop in stopped)


@pytest.mark.slow
@given(
    topics=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 3), max_size=8),
    former=st.sets(st.text("abcd", min_size=1, max_size=3), max_size=4),
    most=st.integers(1, 1_000),
    repeated=st.integers(0, 3),
)
def test_a_full_update_in_parts_is_as_good_as_a_whole_one(
    topics: dict[str, int], former: set[str], most: int, repeated: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outbox, "MAX_REQUEST_BYTES", 1 << 30)
        known = Told(dict.fromkeys(former, 1)).full_update()
        later = Told(topics, first_number=100)
        [whole] = later.full_update()
        patch.setattr(outbox, "MAX_REQUEST_BYTES", most)
        later = Told(topics, first_number=100)
        parts = later.full_update()
    in_one, in_parts = MetadataCache(), MetadataCache()
    for cache in (in_one, in_parts):
        for update in known:
            cache.update(update)
    expected = in_one.update(whole)
    assert expected.is_full
    for index, part in enumerate(parts):
        if index:
            assert {topic.name for topic in in_parts} >= former  # until the last part
        change = in_parts.update(part)
        for _ in range(repeated):  # its answer was lost
            again = in_parts.update(part)
            assert again.is_full == change.is_full
        assert change.is_full == (index == len(parts) - 1)
    assert list(in_parts) == list(in_one)
    assert {topic.name for topic in change.removed} == {topic.name for topic in expected.removed}


@pytest.fixture
def small_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_REQUEST_BYTES", 1_000)


@pytest.mark.usefixtures("small_requests")
def test_large_changes_are_sent_in_parts_too() -> None:
    told = Told({f"t{number:05d}": 1 for number in range(40)})
    metadata = MetadataCache()
    for request in told.whole_state():
        if isinstance(request, UpdateMetadata):
            metadata.update(request)
    told.add("other", 1)
    gone = sorted(told.context.topic_ids)[:30]
    for topic in gone:
        told.context.remove_topic(topic)
    told.sent.clear()
    told.outbox.update_metadata([*told.context.topic_ids, *gone])
    told.outbox.flush()
    assert len(told.sent) > 1
    for request in told.sent:
        assert not metadata.update(request).is_full
    assert [topic.name for topic in metadata] == sorted(told.context.topic_ids)


@pytest.mark.usefixtures("small_requests")
def test_acls_and_quotas_are_in_the_first_part_only() -> None:
    told = Told({f"t{number:05d}": 1 for number in range(40)})
    updates = told.full_update()
    assert len(updates) > 1
    for name in ("acls", "quotas", "client_metrics"):
        assert [getattr(each, name) is not None for each in updates] == [True] + [False] * (len(updates) - 1)


@pytest.mark.usefixtures("small_requests")
def test_the_last_part_of_an_update_whose_first_part_was_not_seen_deletes_nothing() -> None:
    told = Told({f"t{number:05d}": 1 for number in range(40)})
    *_, last = told.full_update()
    metadata = MetadataCache()
    metadata.update(UpdateMetadata(
        controller_id=2, controller_epoch=1, broker_epoch=1, brokers=(), topics=(told.context.topic_state("t00000"),)
    ))  # fmt: skip
    assert not metadata.update(last).is_full
    assert "t00000" in metadata
    assert not metadata.is_complete
