"""A cluster in the test's process, as in users' tests."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
import trustme

from sparklog.base.errors import ConfigError
from sparklog.client import Admin, Consumer, Producer
from sparklog.testing import RunningCluster, start_cluster
from support.patience import PATIENCE_MS, PATIENCE_S

pytestmark = pytest.mark.slow


def values(bootstrap: str, count: int, **options: str) -> list[bytes | None]:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign_topic("t")
        found: list[bytes | None] = []
        while len(found) < count:
            records = consumer.poll(PATIENCE_MS)
            assert records
            found += [record.value for record in records]
    return found


def test_a_leader_goes_and_comes_and_clients_hardly_notice(sparklog_cluster: RunningCluster) -> None:
    cluster = sparklog_cluster
    with Admin(bootstrap_servers=cluster.bootstrap) as admin, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        admin.create_topic("t")
        for number in range(0, 6, 2):
            producer.send("t", b"%d" % number).result(PATIENCE_S)
            leader = cluster.leader_of("t")
            cluster.stop_broker(leader)
            assert cluster.leader_of("t") not in (-1, leader)
            producer.send("t", b"%d" % (number + 1)).result(PATIENCE_S)
            cluster.start_broker(leader)
        [topic] = admin.describe_topics(["t"])
    assert len(topic.partitions[0].replicas) == 3
    assert values(cluster.bootstrap, 6) == [b"%d" % number for number in range(6)]


def test_clients_of_kafka_are_told_of_all_brokers(sparklog_cluster: RunningCluster) -> None:
    first, *_ = sparklog_cluster.kafka.split(",")
    client = confluent_kafka.Producer({"bootstrap.servers": first})
    found = client.list_topics(timeout=PATIENCE_S)

    assert sorted(f"{broker.host}:{broker.port}" for broker in found.brokers.values()) == sorted(
        sparklog_cluster.kafka.split(",")
    )
    assert found.controller_id == sparklog_cluster.controller_id


def test_the_controller_goes_and_another_is_elected(sparklog_cluster: RunningCluster) -> None:
    before = sparklog_cluster.controller_id
    sparklog_cluster.stop_broker(before)

    with Admin(bootstrap_servers=sparklog_cluster.bootstrap) as admin:
        admin.create_topic("t", replication_factor=2)
        assert admin.describe_cluster().controller_id not in (-1, before)


def test_brokers_speak_tls_to_one_another_where_their_listeners_do(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    keys = {"ssl_keystore_location": str(tmp_path / "key.pem"), "ssl_truststore_location": str(tmp_path / "ca.pem")}

    with start_cluster(3, grpc_security_protocol="SSL", ssl_client_auth="required", **keys) as cluster:
        with Producer(bootstrap_servers=cluster.bootstrap, security_protocol="SSL", **keys) as producer:
            producer.send("t", b"with two brokers at least").result(PATIENCE_S)
        assert values(cluster.bootstrap, 1, security_protocol="SSL", **keys) == [b"with two brokers at least"]


def test_a_given_folder_is_kept_and_a_wrong_key_leaves_nothing(tmp_path: Path) -> None:
    with start_cluster(2, tmp_path / "data") as cluster:
        assert cluster.kafka == ""
    assert {path.name for path in (tmp_path / "data").iterdir()} >= {"broker-1", "broker-2", "cluster.sqlite"}
    with pytest.raises(ConfigError, match=r"start_cluster: unknown key 'no\.such\.key'"):
        start_cluster(no_such_key=1)
