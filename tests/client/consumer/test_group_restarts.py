"""Groups after the kill of their broker, and the order of records during continuous rebalances."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, ConsumerRecord, Producer
from sparklog.testing import start_broker
from support.clients.group_members import Listener, crash, poll_until, read, shares
from support.names import unique
from support.patience import wait_until
from support.processes.broker import BrokerProcess
from support.runs.seeds import seeds

pytestmark = pytest.mark.slow

NewConsumer = Callable[..., Consumer]
PARTITIONS = 4


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), "group.min.session.timeout.ms=1000") as process:
        yield process


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """A topic with these partitions and a unique name, which is also the group's."""
    name = unique("t")
    with Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    return name


def member(address: str, group: str, **options: object) -> Consumer:
    settings = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 50, "group_id": group}
    return Consumer(bootstrap_servers=address, **settings | options)


def test_commits_and_membership_survive_kill_9_of_the_broker(broker: BrokerProcess, topic: str) -> None:
    listener = Listener()
    with Admin(bootstrap_servers=broker.grpc) as admin, Producer(bootstrap_servers=broker.grpc) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
        with member(broker.grpc, topic, enable_auto_commit=False, session_timeout_ms=600_000) as consumer:
            consumer.subscribe([topic], listener=listener)
            seen = read([consumer], 100)
            consumer.commit()

            broker.kill()
            assert consumer.poll(300) == []
            broker.start()

            for number in range(100, 200):
                producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            seen += read([consumer], 100)
            assert [int(record.value) for record in sorted(seen, key=lambda record: int(record.value))] == list(
                range(200)
            )
            assert [what for what, _ in listener.told] == ["assigned"]  # nobody else came: it is still a member
            crash(consumer)  # so that only what it committed before the kill counts

        committed = admin.list_group_offsets(topic)
        assert {item: found.offset for item, found in committed.items()} == {
            TopicPartition(topic, number): 25 for number in range(PARTITIONS)
        }


def test_a_member_that_reaches_no_coordinator_for_its_session_has_lost_its_partitions(
    broker: BrokerProcess, topic: str
) -> None:
    listener = Listener()
    with member(broker.grpc, topic, session_timeout_ms=3_000, request_timeout_ms=500) as consumer:
        consumer.subscribe([topic], listener=listener)
        poll_until(lambda: shares(consumer) == [4], consumer)

        broker.kill()
        poll_until(lambda: shares(consumer) == [0], consumer)
        broker.start()
        poll_until(lambda: shares(consumer) == [4], consumer)

    told = [what for what, _ in listener.told]
    times = told.count("lost")  # more than once where the machine stood still for a session
    assert times > 0
    assert told == ["assigned", "lost"] * times + ["assigned", "revoked"]


def test_a_rebalance_survives_kill_9_of_the_broker(broker: BrokerProcess, topic: str) -> None:
    with member(broker.grpc, topic) as one, member(broker.grpc, topic) as two:
        one.subscribe([topic])
        poll_until(lambda: shares(one) == [4], one)
        two.subscribe([topic])
        two.poll(20)  # the group waits for `one` to join again

        broker.kill()
        two.poll(50)
        broker.start()

        poll_until(lambda: shares(one, two) == [2, 2], one, two)
        assert {*one.assignment(), *two.assignment()} == {TopicPartition(topic, each) for each in range(PARTITIONS)}


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(1, soak=3))
@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("range", marks=pytest.mark.soak_only),
        pytest.param("sticky", marks=pytest.mark.soak_only),
        "cooperative-sticky",
    ],
)
def test_each_keys_records_stay_in_order_and_none_is_missing_while_members_come_and_go(
    strategy: str, seed: int
) -> None:
    producers, keys, per_key = 3, 8, 300
    seen: dict[TopicPartition, list[tuple[int, bytes, int]]] = defaultdict(list)
    places: set[tuple[str, int, int]] = set()
    with start_broker(
        group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100, offsets_topic_num_partitions=3
    ) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topic("t", partitions=PARTITIONS)
        chance = random.Random(f"{strategy} {seed}")

        def produce(producer_number: int) -> None:
            with Producer(bootstrap_servers=broker.bootstrap, linger_ms=1) as producer:
                for number in range(per_key):
                    for key in range(keys):
                        producer.send("t", b"%d" % number, key=b"%d-%d" % (producer_number, key))
                    producer.flush()

        def new_member() -> Consumer:
            consumer = member(
                broker.bootstrap,
                "g",
                partition_assignment_strategy=strategy,
                auto_commit_interval_ms=20,
                session_timeout_ms=1_000,
                max_poll_records=50,
            )
            consumer.subscribe(["t"])
            return consumer

        def note(records: list[ConsumerRecord]) -> None:
            for record in records:
                seen[TopicPartition(record.topic, record.partition)].append(
                    (record.offset, record.key, int(record.value))
                )
                places.add((record.topic, record.partition, record.offset))

        threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
        for thread in threads:
            thread.start()
        members = [new_member(), new_member()]
        total, polls_since, read_before = producers * keys * per_key, 0, 0

        def is_all_read_or_poll() -> bool:
            nonlocal polls_since, read_before
            for consumer in members:
                note(consumer.poll(5))
            count = len(places)
            polls_since += 1
            if polls_since >= 25 and count > read_before:  # a group that changes faster than it settles reads nothing
                change(members, new_member, chance)
                polls_since, read_before = 0, count
            return count == total

        wait_until(is_all_read_or_poll, f"{total} records are read", tell=lambda: f"{len(places)} are", every_s=0)
        for thread in threads:
            thread.join()
        for consumer in members:
            consumer.close()

    check_order(seen, producers * keys, per_key)


def change(members: list[Consumer], new_member: Callable[[], Consumer], chance: random.Random) -> None:
    """A member joins, leaves or dies; at least one stays."""
    match chance.choice(["comes", "leaves", "dies"]) if len(members) > 1 else "comes":
        case "comes" if len(members) < PARTITIONS:
            members.append(new_member())
        case "leaves":
            members.pop(chance.randrange(len(members))).close()
        case "dies":
            crash(members.pop(chance.randrange(len(members))))


def check_order(seen: dict[TopicPartition, list[tuple[int, bytes, int]]], keys: int, per_key: int) -> None:
    by_key: dict[bytes, list[int]] = defaultdict(list)
    for found in seen.values():
        first: dict[int, tuple[bytes, int]] = {}
        for offset, key, number in found:  # in the order in which they were read, by whomever
            assert first.setdefault(offset, (key, number)) == (key, number)
            highest = max(first)
            assert offset <= highest
            assert len(first) == highest + 1 - min(first)  # nothing is passed over, by nobody
        for key, number in first.values():
            by_key[key].append(number)
    assert len(by_key) == keys
    assert all(numbers == list(range(per_key)) for numbers in by_key.values())
