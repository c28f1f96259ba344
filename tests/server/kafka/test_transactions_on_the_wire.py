"""The APIs of transactions over Kafka's protocol: every version of each, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.errors import KafkaError, NotLeaderOrFollower, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.server.kafka.apis import TRANSLATIONS
from support.kafka.connection import Wire
from support.kafka.topic import Topic
from support.kafka.transactions import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    DESCRIBE_PRODUCERS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    OF_PROTOCOL_1,
    OF_PROTOCOL_2,
    OFFSET_FETCH,
    TIMEOUT_MS,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
    Transactional,
    add,
    add_offsets,
    begin,
    commit_offset,
    committed,
    describe,
    end,
    init,
    produce,
    stable_offset,
    wait_for_state,
    write_marker,
)
from support.patience import wait_until

GROUP, TRANSACTION = range(2)

NewName = Callable[[], str]


def every_version(key: int, *, since: int = 0) -> pytest.MarkDecorator:
    """The served versions of the API, from one of them on."""
    first, last = next(each.api.versions for each in TRANSLATIONS if each.api.key == key)
    return pytest.mark.parametrize("version", range(max(first, since), last + 1))


@pytest.fixture
def topic(wire: Wire, new_name: NewName) -> Topic:
    return Topic(wire, new_name())


@pytest.fixture
def producer(wire: Wire, new_name: NewName) -> Transactional:
    return begin(wire, new_name())


@pytest.fixture
def group(wire: Wire, new_name: NewName) -> str:
    """A group whose coordinator was looked up, which creates the offsets topic."""
    name = new_name()

    def is_found() -> bool:
        (found,) = wire.send(FIND_COORDINATOR, 4, key_type=GROUP, coordinator_keys=[name]).coordinators
        (fetched,) = wire.send(OFFSET_FETCH, 9, groups=[{"group_id": name, "topics": None}]).groups
        return found.error_code is fetched.error_code is ErrorCode.none

    wait_until(is_found, "the group has a coordinator")
    return name


def fenced(version: int, first: int) -> ErrorCode:
    """The error of a producer whose id a newer producer has."""
    return ErrorCode.producer_fenced if version >= first else ErrorCode.invalid_producer_epoch


# Who coordinates, and who produces


@every_version(FIND_COORDINATOR, since=1)
def test_this_broker_coordinates_every_transactional_id(
    wire: Wire, kafka_address: tuple[str, int], new_name: NewName, version: int
) -> None:
    name = new_name()
    if version < 4:
        found = [wire.send(FIND_COORDINATOR, version, key=name, key_type=TRANSACTION)]
    else:
        found = wire.send(
            FIND_COORDINATOR, version, key_type=TRANSACTION, coordinator_keys=[name, "other"]
        ).coordinators
        assert [each.key for each in found] == [name, "other"]
    for each in found:
        assert (each.error_code, each.node_id, each.host, each.port) == (ErrorCode.none, 0, *kafka_address)


@every_version(INIT_PRODUCER_ID)
def test_the_next_producer_with_an_id_has_a_higher_epoch(wire: Wire, new_name: NewName, version: int) -> None:
    name = new_name()
    first, second = (init(wire, version, name) for _ in range(2))
    assert first.error_code is second.error_code is ErrorCode.none
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)


@every_version(INIT_PRODUCER_ID)
@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_has_bounds(wire: Wire, new_name: NewName, version: int, timeout_ms: int) -> None:
    refused = init(wire, version, new_name(), transaction_timeout=timeout_ms)
    assert (refused.error_code, refused.producer_id) == (ErrorCode.invalid_transaction_timeout, -1)


@every_version(INIT_PRODUCER_ID, since=3)
def test_a_producer_goes_on_with_a_new_epoch_unless_it_is_fenced(
    wire: Wire, producer: Transactional, version: int
) -> None:
    was = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    first, again = (init(wire, version, producer.transactional_id, **was) for _ in range(2))
    assert (first.error_code, first.producer_epoch) == (ErrorCode.none, producer.producer_epoch + 1)
    assert (again.error_code, again.producer_epoch) == (ErrorCode.none, first.producer_epoch)  # a lost answer
    begin(wire, producer.transactional_id)
    assert init(wire, version, producer.transactional_id, **was).error_code is fenced(version, 4)


# Protocol 1


@every_version(ADD_PARTITIONS)
def test_partitions_are_added(wire: Wire, topic: Topic, producer: Transactional, version: int) -> None:
    name = TopicPartition(topic.name, 0)
    for _ in range(2):
        assert add(wire, version, producer, name) == {name: ErrorCode.none}
    (found,) = describe(wire, producer.transactional_id)
    assert (found.transaction_state, found.topics[0].topic, found.topics[0].partitions) == (
        "Ongoing", topic.name, [0],
    )  # fmt: skip


@every_version(ADD_PARTITIONS)
def test_no_partition_is_added_if_one_does_not_exist(
    wire: Wire, topic: Topic, producer: Transactional, version: int
) -> None:
    names = TopicPartition(topic.name, 0), TopicPartition("nowhere", 0)
    assert add(wire, version, producer, *names) == {
        names[0]: ErrorCode.operation_not_attempted,
        names[1]: ErrorCode.unknown_topic_or_partition,
    }
    assert describe(wire, producer.transactional_id)[0].transaction_state == "Empty"


@every_version(ADD_PARTITIONS)
def test_a_stranger_adds_nothing(
    wire: Wire, topic: Topic, producer: Transactional, new_name: NewName, version: int
) -> None:
    name = TopicPartition(topic.name, 0)
    for stranger, error in (
        (producer._replace(producer_epoch=7), fenced(version, 2)),
        (producer._replace(producer_id=987_654), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id=new_name()), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id=""), ErrorCode.invalid_request),
    ):
        assert add(wire, version, stranger, name) == {name: error}


@every_version(ADD_PARTITIONS, since=4)
def test_brokers_verify_partitions(wire: Wire, topic: Topic, producer: Transactional, version: int) -> None:
    name = TopicPartition(topic.name, 0)
    assert add(wire, version, producer, name, verify=True) == {name: ErrorCode.invalid_txn_state}
    assert add(wire, version, producer, name) == {name: ErrorCode.none}
    assert add(wire, version, producer, name, verify=True) == {name: ErrorCode.none}


@pytest.mark.parametrize("version", range(3, OF_PROTOCOL_1 + 1))
def test_protocol_1_writes_only_to_partitions_that_were_added(
    wire: Wire, topic: Topic, producer: Transactional, version: int
) -> None:
    refused = produce(topic, version, producer, b"a")
    assert refused is (ErrorCode.transaction_abortable if version >= 11 else ErrorCode.invalid_txn_state)
    add(wire, 3, producer, TopicPartition(topic.name, 0))
    assert produce(topic, version, producer, b"a") is ErrorCode.none
    assert stable_offset(topic) == 0


@every_version(END_TXN)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends(wire: Wire, topic: Topic, producer: Transactional, version: int, *, commit: bool) -> None:
    add(wire, 3, producer, TopicPartition(topic.name, 0))
    assert produce(topic, OF_PROTOCOL_1, producer, b"a") is ErrorCode.none
    first, again = (end(wire, version, producer, commit=commit) for _ in range(2))
    assert first.error_code is again.error_code is ErrorCode.none
    if version >= 5:
        following = (producer.producer_id, producer.producer_epoch + 1)
        assert (first.producer_id, first.producer_epoch) == (again.producer_id, again.producer_epoch) == following
    wait_for_state(wire, producer.transactional_id, "CompleteCommit" if commit else "CompleteAbort")
    assert stable_offset(topic) == 2  # the record and its marker
    aborted = topic.fetch(11, 0, isolation_level=1).responses[0].partitions[0].aborted_transactions
    assert [each.producer_id for each in aborted or ()] == ([] if commit else [producer.producer_id])


@every_version(END_TXN)
def test_an_end_that_is_not_the_producer_s_own_is_refused(
    wire: Wire, topic: Topic, producer: Transactional, new_name: NewName, version: int
) -> None:
    add(wire, 3, producer, TopicPartition(topic.name, 0))
    for stranger, error in (
        (producer._replace(producer_epoch=7), fenced(version, 2)),
        (producer._replace(producer_id=987_654), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id=new_name()), ErrorCode.invalid_producer_id_mapping),
        (producer._replace(transactional_id=""), ErrorCode.invalid_request),
    ):
        assert end(wire, version, stranger, commit=True).error_code is error
    begin(wire, producer.transactional_id)  # aborts what is open
    assert end(wire, version, producer, commit=True).error_code is fenced(version, 2)


@every_version(END_TXN)
def test_an_end_is_final(wire: Wire, topic: Topic, producer: Transactional, version: int) -> None:
    assert end(wire, version, producer, commit=True).error_code is ErrorCode.invalid_txn_state  # nothing is open
    add(wire, 3, producer, TopicPartition(topic.name, 0))
    assert end(wire, version, producer, commit=True).error_code is ErrorCode.none
    assert end(wire, version, producer, commit=False).error_code is ErrorCode.invalid_txn_state


# Protocol 2


def test_protocol_2_enrols_with_the_first_batch_and_raises_the_epoch_with_each_end(
    wire: Wire, topic: Topic, producer: Transactional
) -> None:
    assert produce(topic, OF_PROTOCOL_2, producer, b"a") is ErrorCode.none
    assert describe(wire, producer.transactional_id)[0].topics[0].topic == topic.name
    ended = end(wire, 5, producer, commit=True)
    following = producer._replace(producer_epoch=ended.producer_epoch)
    assert produce(topic, OF_PROTOCOL_2, following, b"b") is ErrorCode.none
    assert produce(topic, OF_PROTOCOL_2, producer, b"late", sequence=1) is ErrorCode.invalid_producer_epoch
    assert end(wire, 5, following, commit=False).error_code is ErrorCode.none


def test_a_delayed_commit_does_not_end_the_next_transaction(wire: Wire, topic: Topic, producer: Transactional) -> None:
    produce(topic, OF_PROTOCOL_2, producer, b"a")
    ended = end(wire, 5, producer, commit=True)
    following = producer._replace(producer_epoch=ended.producer_epoch)
    produce(topic, OF_PROTOCOL_2, following, b"b")
    assert end(wire, 5, producer, commit=True).error_code is ErrorCode.producer_fenced
    assert describe(wire, producer.transactional_id)[0].transaction_state == "Ongoing"


def test_protocol_2_may_abort_a_transaction_that_has_no_partition(wire: Wire, producer: Transactional) -> None:
    ended = end(wire, 5, producer, commit=False)
    assert (ended.error_code, ended.producer_epoch) == (ErrorCode.none, producer.producer_epoch + 1)


# Offsets of groups


@every_version(ADD_OFFSETS)
def test_a_group_s_partition_is_added(wire: Wire, producer: Transactional, group: str, version: int) -> None:
    assert add_offsets(wire, version, producer, group) is ErrorCode.none
    assert describe(wire, producer.transactional_id)[0].topics[0].topic == "__consumer_offsets"
    for stranger, error in (
        (producer._replace(producer_epoch=7), fenced(version, 2)),
        (producer._replace(producer_id=987_654), ErrorCode.invalid_producer_id_mapping),
    ):
        assert add_offsets(wire, version, stranger, group) is error


@every_version(TXN_OFFSET_COMMIT)
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_take_effect_with_the_transaction(
    wire: Wire, topic: Topic, producer: Transactional, group: str, version: int, *, commit: bool
) -> None:
    name, missing = TopicPartition(topic.name, 0), TopicPartition(topic.name, 99)
    if version < 5:
        assert add_offsets(wire, 3, producer, group) is ErrorCode.none
    assert commit_offset(wire, version, producer, group, name, missing) == {
        name: ErrorCode.none, missing: ErrorCode.unknown_topic_or_partition,
    }  # fmt: skip
    assert committed(wire, group) == (-1, ErrorCode.unstable_offset_commit)
    assert end(wire, 5 if version >= 5 else 3, producer, commit=commit).error_code is ErrorCode.none
    wait_until(lambda: committed(wire, group) == ((5 if commit else -1), ErrorCode.none), "the marker is written")


@pytest.mark.parametrize("version", range(5))
def test_protocol_1_commits_offsets_only_of_a_group_that_was_added(
    wire: Wire, topic: Topic, producer: Transactional, group: str, version: int
) -> None:
    name = TopicPartition(topic.name, 0)
    refused = commit_offset(wire, version, producer, group, name)
    assert refused == {name: ErrorCode.transaction_abortable if version >= 4 else ErrorCode.invalid_txn_state}
    assert committed(wire, group) == (-1, ErrorCode.none)


@every_version(TXN_OFFSET_COMMIT, since=3)
def test_a_consumer_that_has_left_its_group_commits_nothing(
    wire: Wire, topic: Topic, producer: Transactional, group: str, version: int
) -> None:
    name = TopicPartition(topic.name, 0)
    add_offsets(wire, 3, producer, group)
    gone = commit_offset(wire, version, producer, group, name, generation_id=4, member_id="gone")
    assert gone == {name: ErrorCode.illegal_generation}
    assert committed(wire, group) == (-1, ErrorCode.none)


@pytest.mark.parametrize(
    ("error", "answer"),
    [(NotLeaderOrFollower, ErrorCode.not_coordinator), (UnknownTopicOrPartition, ErrorCode.coordinator_not_available)],
)
def test_a_broker_that_does_not_lead_the_group_s_partition_sends_the_client_to_its_coordinator(
    wire: Wire,
    topic: Topic,
    producer: Transactional,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    error: type[KafkaError],
    answer: ErrorCode,
) -> None:
    get_leader = ReplicaManager.get_leader

    def moved(self: ReplicaManager, name: TopicPartition) -> Replica:
        if name.topic == "__consumer_offsets":
            raise error(f"{name} is led by another broker")
        return get_leader(self, name)

    monkeypatch.setattr(ReplicaManager, "get_leader", moved)
    name = TopicPartition(topic.name, 0)
    assert commit_offset(wire, 5, producer, group, name) == {name: answer}


# Markers and tools


@every_version(WRITE_TXN_MARKERS)
def test_a_marker_ends_what_no_coordinator_ends(
    wire: Wire, topic: Topic, producer: Transactional, version: int
) -> None:
    name = TopicPartition(topic.name, 0)
    assert produce(topic, OF_PROTOCOL_2, producer, b"a") is ErrorCode.none
    (before,) = wire.send(
        DESCRIBE_PRODUCERS, 0, topics=[{"name": topic.name, "partition_indexes": [0]}]
    ).topics[0].partitions[0].active_producers  # fmt: skip
    assert before.current_txn_start_offset == 0
    assert write_marker(wire, version, producer, name) is ErrorCode.none
    assert stable_offset(topic) == 2
    assert write_marker(wire, version, producer, name) is ErrorCode.none  # one that is sent again changes nothing
    assert stable_offset(topic) == 2


@every_version(WRITE_TXN_MARKERS)
def test_markers_of_older_coordinators_and_producers_are_refused(
    wire: Wire, topic: Topic, producer: Transactional, version: int
) -> None:
    name = TopicPartition(topic.name, 0)
    later = begin(wire, producer.transactional_id)
    assert produce(topic, OF_PROTOCOL_2, later, b"a") is ErrorCode.none
    assert write_marker(wire, version, producer, name) is ErrorCode.invalid_producer_epoch
    assert write_marker(wire, version, later, name, coordinator_epoch=9) is ErrorCode.none
    fenced_out = write_marker(wire, version, later, name, coordinator_epoch=8)
    assert fenced_out is ErrorCode.transaction_coordinator_fenced
    nowhere = TopicPartition(topic.name, 99)
    assert write_marker(wire, version, later, nowhere) is ErrorCode.unknown_topic_or_partition


def test_transactional_ids_are_described(wire: Wire, topic: Topic, producer: Transactional, new_name: NewName) -> None:
    idle, unknown, empty = describe(wire, producer.transactional_id, new_name(), "")
    assert (idle.error_code, idle.transaction_state, idle.topics) == (0, "Empty", [])
    assert (idle.transaction_timeout_ms, idle.transaction_start_time_ms) == (TIMEOUT_MS, -1)
    assert (idle.producer_id, idle.producer_epoch) == producer[1:]
    assert (unknown.error_code, unknown.producer_id) == (ErrorCode.transactional_id_not_found.value, 0)
    assert empty.error_code == ErrorCode.invalid_request.value
    add(wire, 3, producer, TopicPartition(topic.name, 0))
    (busy,) = describe(wire, producer.transactional_id)
    assert (busy.transaction_state, [each.topic for each in busy.topics]) == ("Ongoing", [topic.name])
    assert busy.transaction_start_time_ms > 0


@every_version(LIST_TRANSACTIONS)
def test_transactional_ids_are_listed(wire: Wire, topic: Topic, producer: Transactional, version: int) -> None:
    add(wire, 3, producer, TopicPartition(topic.name, 0))

    def ask(**filters: Any) -> Any:
        given = {
            "state_filters": (), "producer_id_filters": (), "duration_filter": -1, "transactional_id_pattern": None,
        } | filters  # fmt: skip
        return wire.send(LIST_TRANSACTIONS, version, **given)

    def is_listed(response: Any) -> bool:
        assert response.error_code is ErrorCode.none
        return producer.transactional_id in [each.transactional_id for each in response.transaction_states]

    assert is_listed(ask())
    assert is_listed(ask(state_filters=["Ongoing"], producer_id_filters=[producer.producer_id]))
    assert not is_listed(ask(state_filters=["Empty"]))
    assert not is_listed(ask(producer_id_filters=[987_654]))
    assert ask(state_filters=["Open"]).unknown_state_filters == ("Open",)
    if version >= 1:
        assert not is_listed(ask(duration_filter=3_600_000))
    if version >= 2:
        assert is_listed(ask(transactional_id_pattern=f"{producer.transactional_id}|x"))
        assert not is_listed(ask(transactional_id_pattern="x"))
        wrong = ask(transactional_id_pattern="(")
        assert (wrong.error_code, wrong.transaction_states) == (ErrorCode.invalid_regular_expression, ())
