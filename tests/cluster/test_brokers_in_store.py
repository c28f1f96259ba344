"""Brokers register, and one of them is the controller, in the cluster store."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from sparklog.base.addresses import Address
from sparklog.base.errors import BadVersion, ConfigError, ConnectionLoss, NodeExists, StoreError
from sparklog.cluster import brokers, elections
from sparklog.cluster.elections import NO_CONTROLLER, ControllerElection
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.model import BrokerInfo
from sparklog.cluster.store import Create, Operation, ensure_path
from support.store_engines import Told

ONE = BrokerInfo(
    broker_id=1,
    grpc_address="[::1]:9094",
    listeners={"OUTSIDE": Address("kafka.example", 443), "PLAINTEXT": Address("here", 9092)},
    rack="r1",
    version="1.2",
)
TWO = replace(ONE, broker_id=2, rack="")


@pytest.fixture
def tree() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def store(tree: MemoryTree) -> MemoryStore:
    return MemoryStore(tree)


def register(store: MemoryStore, info: BrokerInfo = ONE, directory_id: str = "disk") -> int:
    return brokers.register(store, info, directory_id, time_ms=7, protocols={"OUTSIDE": "SASL_SSL"})


def elect(store: MemoryStore, broker_id: int = 1, directory_id: str = "disk") -> ControllerElection | int:
    return elections.elect(store, broker_id, directory_id, time_ms=7)


def test_brokers_are_loaded_as_they_were_registered(tree: MemoryTree, store: MemoryStore) -> None:
    epochs = [register(store), register(MemoryStore(tree), TWO)]
    assert brokers.load(store) == {1: replace(ONE, epoch=epochs[0]), 2: replace(TWO, epoch=epochs[1])}


def test_the_node_is_that_of_kafka(store: MemoryStore) -> None:
    register(store)
    node = store.get("/brokers/ids/1")
    assert node.owner == store.session_id
    assert json.loads(node.data) == {
        "version": 5,
        "host": "here",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "7",
        "endpoints": ["OUTSIDE://kafka.example:443", "PLAINTEXT://here:9092", "GRPC://[::1]:9094"],
        "listener_security_protocol_map": {"OUTSIDE": "SASL_SSL", "PLAINTEXT": "PLAINTEXT", "GRPC": "PLAINTEXT"},
        "rack": "r1",
        "features": {},
        "sparklog": {"version": "1.2", "directory_id": "disk"},
    }


class Contested(MemoryStore):
    """A store in which other brokers write first for a while: attempts to register fail before one succeeds."""

    quicker = 0
    attempts = 0

    def multi(self, operations: Iterable[Operation]) -> None:
        operations = list(operations)
        if any(each.path == "/brokers/ids/1" for each in operations):
            self.attempts += 1
            if self.attempts <= self.quicker:
                raise NodeExists("/brokers/ids/1")
        super().multi(operations)


@pytest.mark.parametrize("quicker", [0, 1, brokers.ATTEMPTS - 1])
def test_a_broker_is_registered_by_the_first_attempt_that_succeeds(tree: MemoryTree, quicker: int) -> None:
    store = Contested(tree)
    store.quicker = quicker
    assert register(store) == store.get("/brokers/ids/1").created
    assert store.attempts == quicker + 1


def test_a_registration_fails_if_other_brokers_are_always_first(tree: MemoryTree) -> None:
    store = Contested(tree)
    store.quicker = brokers.ATTEMPTS
    with pytest.raises(StoreError, match="has been changed by others 20 times"):
        register(store)
    assert store.attempts == brokers.ATTEMPTS


def test_a_broker_that_was_killed_takes_its_place_again_with_a_new_epoch(tree: MemoryTree, store: MemoryStore) -> None:
    told = Told()
    before = register(store)
    watching = MemoryStore(tree)
    brokers.load(watching, told)
    again = MemoryStore(tree)
    after = register(again)
    assert after > before
    assert told.next() == brokers.BROKER_IDS
    tree.expire(store.session_id)
    assert brokers.load(again) == {1: replace(ONE, epoch=after)}


def test_a_broker_of_another_directory_with_the_same_id_is_refused(tree: MemoryTree, store: MemoryStore) -> None:
    epoch = register(store)
    with pytest.raises(NodeExists, match="PLAINTEXT://here:9092"):
        register(MemoryStore(tree), directory_id="another")
    assert brokers.load(store)[1].epoch == epoch


async def test_a_start_waits_for_the_id_and_for_the_store_and_gives_up(tree: MemoryTree, store: MemoryStore) -> None:
    register(store)
    second = MemoryStore(tree)
    with pytest.raises(ConfigError, match=r"broker\.id = 1"):
        await brokers.register_when_free(second, ONE, "another", time_ms=7, timeout_ms=10)
    second.disconnect()
    with pytest.raises(ConnectionLoss):
        await brokers.register_when_free(second, ONE, "another", time_ms=7, timeout_ms=0)
    second.reconnect()
    tree.expire(store.session_id)
    epoch = await brokers.register_when_free(second, ONE, "another", time_ms=7, timeout_ms=10)
    assert brokers.load(second)[1].epoch == epoch


def test_a_registration_whose_answer_was_lost_is_not_repeated(store: MemoryStore) -> None:
    ensure_path(store, brokers.BROKER_IDS)
    store.lose_next_answer()
    with pytest.raises(ConnectionLoss):
        register(store)
    created = store.get("/brokers/ids/1").created
    assert register(store) == created


def test_a_node_from_before_there_were_sessions_is_replaced(store: MemoryStore) -> None:
    ensure_path(store, brokers.BROKER_IDS)
    store.create("/brokers/ids/1", b'{"version":5,"host":"here","port":1,"endpoints":["GRPC://here:1"],"rack":""}')
    assert brokers.load(store)[1].grpc_address == "here:1"
    register(store)
    assert store.get("/brokers/ids/1").owner == store.session_id


def test_one_broker_is_elected(tree: MemoryTree, store: MemoryStore) -> None:
    told = Told()
    assert elections.find_controller(store, told) == NO_CONTROLLER
    assert elect(store) == ControllerElection(epoch=1, epoch_version=1)
    assert told.next() == elections.CONTROLLER
    assert elect(MemoryStore(tree), 2, "another") == 1
    assert elections.find_controller(store) == 1
    assert store.get("/controller_epoch").data == b"1"
    assert json.loads(store.get("/controller").data) == {
        "version": 1, "brokerid": 1, "timestamp": "7", "sparklog": {"directory_id": "disk"},
    }  # fmt: skip


def test_a_deposed_controller_changes_nothing(tree: MemoryTree, store: MemoryStore) -> None:
    second = MemoryStore(tree)
    first = elect(store)
    assert isinstance(first, ControllerElection)
    tree.expire(store.session_id)
    assert elect(second, 2, "another") == ControllerElection(epoch=2, epoch_version=2)
    with pytest.raises(BadVersion):
        store.multi((first.fence, Create("/decided")))
    elections.resign(store, first)
    assert elections.find_controller(store) == 2


def test_a_controller_that_resigns_leaves_room_for_another(tree: MemoryTree, store: MemoryStore) -> None:
    elected = elect(store)
    assert isinstance(elected, ControllerElection)
    elections.resign(store, elected)
    assert elections.find_controller(store) == NO_CONTROLLER
    assert elect(MemoryStore(tree), 2, "another") == ControllerElection(epoch=2, epoch_version=2)


def test_an_election_whose_answer_was_lost_is_found_again(store: MemoryStore) -> None:
    store.create("/controller_epoch", b"6")
    store.lose_next_answer()
    with pytest.raises(ConnectionLoss):
        elect(store)
    assert elect(store) == ControllerElection(epoch=7, epoch_version=1)


def test_a_controller_that_was_killed_is_elected_anew_at_once(tree: MemoryTree, store: MemoryStore) -> None:
    elect(store)
    assert elect(MemoryStore(tree)) == ControllerElection(epoch=2, epoch_version=2)
    tree.expire(store.session_id)
    assert elections.find_controller(MemoryStore(tree)) == 1


def test_the_same_id_with_another_directory_is_another_broker(tree: MemoryTree, store: MemoryStore) -> None:
    elect(store)
    assert elect(MemoryStore(tree), 1, "another") == 1
    assert store.get("/controller_epoch").data == b"1"
