"""The settings of each broker of a cluster on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.base.cluster_config import broker_ids, broker_settings, broker_toml, cluster_defaults, cores_defaults
from sparklog.base.config import BrokerConfig
from sparklog.base.config_file import given_keys, load_broker_config

CONF = Path(__file__).parents[2] / "conf" / "three-brokers"


def test_each_broker_has_its_folder_and_its_ports_and_all_one_store() -> None:
    config = BrokerConfig(
        log_dirs=("/a", "/b"),
        grpc_listener="127.0.0.1:9094",
        listeners=("PLAINTEXT://127.0.0.1:9092", "SSL://[::1]:9093"),
        advertised_listeners=("SSL://kafka.example:9093",),
        metrics_listener="127.0.0.1:0",
    )

    assert broker_settings(config, 1) | {"log.dirs": ""} == {
        "broker.id": "1",
        "log.dirs": "",
        "grpc.listener": "127.0.0.1:9094",
        "listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9093",
        "advertised.listeners": "SSL://kafka.example:9093",
        "metrics.listener": "127.0.0.1:0",
        "cluster.store": "/a/cluster.sqlite",
    }
    third = broker_settings(config, 3)
    assert third["log.dirs"] == "/a/broker-3,/b/broker-3"
    assert third["grpc.listener"] == "127.0.0.1:9114"
    assert third["listeners"] == "PLAINTEXT://127.0.0.1:9112,SSL://[::1]:9113"
    assert third["cluster.store"] == "/a/cluster.sqlite"


def test_with_zookeeper_there_is_no_file_to_share() -> None:
    assert "cluster.store" not in broker_settings(BrokerConfig(zookeeper_connect="zoo:2181"), 1)


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_three_brokers_or_more_lose_nothing_when_one_dies(brokers: int, replicas: str, in_sync: str) -> None:
    assert cluster_defaults(brokers) == {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "cluster.history.enable": "true",
    }


def test_the_brokers_of_a_second_machine_count_from_its_broker_id_and_have_the_same_ports() -> None:
    config = BrokerConfig(broker_id=17, log_dirs=("/a",), grpc_listener="10.0.0.2:9094")

    assert list(broker_ids(config, 3)) == [17, 18, 19]
    second = broker_settings(config, 2)
    assert (second["broker.id"], second["log.dirs"], second["grpc.listener"]) == ("18", "/a/broker-18", "10.0.0.2:9104")


def test_brokers_for_cores_keep_one_replica_on_one_machine_and_three_where_zookeeper_joins_several() -> None:
    alone, joined = cores_defaults("h", has_zookeeper=False), cores_defaults("h", has_zookeeper=True)

    assert alone == {**cluster_defaults(1), "broker.rack": "h"}
    assert joined == {**cluster_defaults(3), "broker.rack": "h"}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_configuration_of_three_brokers_is_what_is_generated_and_can_be_read(number: int) -> None:
    path = CONF / f"broker-{number}.toml"
    config = load_broker_config(str(path), {}, [])

    assert path.read_text() == broker_toml(number), "run python -m sparklog.base.cluster_config conf/three-brokers"
    assert (config.broker_id, config.default_replication_factor, config.topic_defaults.min_insync_replicas) == (
        number,
        3,
        2,
    )


def test_keys_that_anybody_has_said_something_of_are_known(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[log]\nsegment.bytes = 1048576\n")

    given = given_keys(str(file), {"SPARKLOG_CONFIG_NUM_PARTITIONS": "3", "HOME": "/"}, ["min.insync.replicas=1"])

    assert given == {"log.segment.bytes", "num.partitions", "min.insync.replicas"}
