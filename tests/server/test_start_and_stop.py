"""Starts and stops of a broker: kept data, connected clients, and failed starts."""

from __future__ import annotations

import threading
import urllib.request
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sparklog.base.errors import ConfigError
from sparklog.testing import start_broker
from sparklog.v1 import admin_pb2, log_pb2
from support.patience import PATIENCE_S, wait_until
from support.processes.ports import reserve_port

pytestmark = pytest.mark.slow

LONG_MS = 600_000


def test_topics_records_and_configurations_survive_a_stop(connect, batch, tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker:
        client = connect(broker)
        new = admin_pb2.NewTopic(name="kept", partitions=2, configs={"retention.ms": "-1"})
        client.admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=[new]))
        client.produce("kept", batch([b"a", b"b"]), 1)
        cluster_id = client.admin.DescribeCluster(admin_pb2.DescribeClusterRequest()).cluster_id
        epoch = client.describe("kept").partitions[1].leader_epoch
    with start_broker(tmp_path) as broker:
        client = connect(broker)
        found = client.describe("kept")
        assert dict(found.configs) == {"retention.ms": "-1"}
        assert [part.log_end_offset for part in found.partitions] == [0, 2]
        assert found.partitions[1].leader_epoch > epoch
        assert len(client.fetch("kept", 0, 1, format=log_pb2.RECORDS).records.records) == 2
        assert client.produce("kept", batch([b"c"]), 1).base_offset == 2
        assert client.admin.DescribeCluster(admin_pb2.DescribeClusterRequest()).cluster_id == cluster_id


def test_a_stop_leaves_the_marker_and_the_high_watermarks(connect, batch, tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker:
        connect(broker).produce("t", batch([b"a", b"b"]))
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"


def test_high_watermarks_are_written_as_time_goes_by(connect, batch, tmp_path: Path) -> None:
    with start_broker(tmp_path, replica_high_watermark_checkpoint_interval_ms=10) as broker:
        connect(broker).produce("t", batch([b"a", b"b"]))
        checkpoint = tmp_path / "replication-offset-checkpoint"
        wait_until(lambda: checkpoint.exists() and "t 0 2" in checkpoint.read_text(), "the high watermark is written")


def test_folders_that_the_cluster_store_does_not_know_become_topics(connect, batch, tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker:
        connect(broker).produce("found", batch([b"a"]))
    for file in tmp_path.glob("cluster.sqlite*"):
        file.unlink()
    with start_broker(tmp_path) as broker:
        client = connect(broker)
        assert client.fetch("found", 0).next_offset == 1
        assert client.produce("found", batch([b"b"])).base_offset == 1


def test_a_deletion_that_was_cut_off_is_carried_on(connect, batch, tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker:
        connect(broker).produce("doomed", batch([b"a"]))
        services = broker.node.broker.services
        services.topics._store.mark_deleted("doomed", services.metadata.get("doomed").topic_id)
    with start_broker(tmp_path) as broker:
        assert connect(broker).describe("doomed").error.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert not (tmp_path / "doomed-0").exists()


def test_waiting_calls_end_and_connected_clients_are_told_when_a_broker_stops(connect, batch) -> None:
    # Where it waited for the calls, or for all the time that it allows itself, the test would not end.
    with start_broker(controlled_shutdown_timeout_ms=2 * LONG_MS) as broker:
        client = connect(broker)
        client.produce("t", batch([b"a"]))
        part = log_pb2.PartitionFetch(topic="t", partition=0, fetch_offset=1)
        polling = client.log.Fetch.future(log_pb2.FetchRequest(partitions=[part], max_wait_ms=LONG_MS))
        subscribed = client.log.Subscribe(log_pb2.SubscribeRequest(partitions=[part]))
        watching = health_pb2_grpc.HealthStub(client.channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
        open_stream = Requests(client, "t", batch)
        assert open_stream.answer().partitions[0].base_offset == 1
        wait_until(lambda: broker.node.broker.waiting_requests >= 1, "the poll waits")
        stopping = threading.Thread(target=broker.stop, daemon=True)
        stopping.start()
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive(), "the broker does not stop"
        assert polling.result(PATIENCE_S).partitions[0].next_offset in (1, 2)
        for call in (subscribed, open_stream.call):
            with pytest.raises(grpc.RpcError) as told:
                list(call)
            assert told.value.code() == grpc.StatusCode.UNAVAILABLE


class Requests:
    """A produce stream that has sent one request and stays open."""

    def __init__(self, client, topic: str, batch) -> None:
        part = log_pb2.PartitionProduce(topic=topic, partition=0, batches=bytes(batch([b"x"])))
        self._first = iter([log_pb2.ProduceRequest(partitions=[part])])
        self._over = threading.Event()
        self.call = client.log.ProduceStream(self._requests())
        self.call.add_callback(self._over.set)

    def _requests(self):
        yield from self._first
        self._over.wait(LONG_MS / 1000)

    def answer(self) -> log_pb2.ProduceResponse:
        return next(self.call)


def test_a_port_that_is_taken_is_told_before_anything_is_opened(tmp_path: Path) -> None:
    with (
        start_broker() as broker,
        pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use"),
    ):
        start_broker(tmp_path / "other", grpc_listener=broker.bootstrap)
    assert not (tmp_path / "other" / ".lock").exists()


def test_a_folder_that_another_broker_uses_is_told(tmp_path: Path) -> None:
    with start_broker(tmp_path), pytest.raises(ConfigError, match="is used by another broker"):
        start_broker(tmp_path)
    start_broker(tmp_path).stop()


@pytest.mark.parametrize("listener", ["9094", "127.0.0.1:", ":9094", "127.0.0.1:99999", "127.0.0.1:x"])
def test_an_address_that_is_none_is_told(listener: str) -> None:
    with pytest.raises(ConfigError, match=r"grpc\.listener = .*: it must be HOST:PORT"):
        start_broker(grpc_listener=listener)


def test_an_address_for_metrics_or_to_advertise_that_is_none_is_told() -> None:
    with start_broker() as broker:
        for key, listener, said in (
            ("metrics_listener", "here", r"metrics\.listener = 'here': it must be HOST:PORT"),
            ("metrics_listener", broker.bootstrap, r"metrics\.listener = .*: Address already in use"),
            ("grpc_advertised_listener", "there", r"grpc\.advertised\.listener = 'there': it must be HOST:PORT"),
        ):
            with pytest.raises(ConfigError, match=said):
                start_broker(**{key: listener})


def test_a_broker_that_does_not_start_keeps_no_port(tmp_path: Path) -> None:
    with start_broker(tmp_path) as running:
        listener = f"127.0.0.1:{reserve_port(running)}"
        with pytest.raises(ConfigError, match="is used by another broker"):
            start_broker(tmp_path, grpc_listener=listener)
        with start_broker(grpc_listener=listener) as other:
            assert other.bootstrap == listener


def test_clients_are_told_the_advertised_address(connect) -> None:
    with start_broker(grpc_advertised_listener="broker.example:1234") as broker:
        found = connect(broker).admin.DescribeCluster(admin_pb2.DescribeClusterRequest())
    assert [each.grpc_address for each in found.brokers] == ["broker.example:1234"]


def test_metrics_are_served_where_they_are_wanted(connect, batch) -> None:
    with start_broker(metrics_listener="127.0.0.1:0") as broker:
        client = connect(broker)
        client.produce("t", batch([b"a", b"b"]))
        client.fetch("t", 0)
        broker.node.broker.metrics.replaced("t", 3, 100, 40)
        with urllib.request.urlopen(f"http://{broker.node.metrics_address}/metrics", timeout=PATIENCE_S) as answer:
            told = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    size = len(batch([b"a", b"b"]))
    assert told['sparklog_requests_total{api="Produce"}'] == "1.0"
    assert told['sparklog_request_seconds_bucket{api="Produce",le="+Inf"}'] == "1.0"
    assert told['sparklog_bytes_in_total{topic="t"}'] == told['sparklog_bytes_out_total{topic="t"}'] == f"{size}.0"
    assert told['sparklog_records_in_total{topic="t"}'] == "2.0"
    assert told['sparklog_replaced_segments_total{topic="t"}'] == "3.0"
    assert told['sparklog_replaced_bytes_before_total{topic="t"}'] == "100.0"
    assert told['sparklog_replaced_bytes_after_total{topic="t"}'] == "40.0"
    assert told['sparklog_log_end_offset{partition="0",topic="t"}'] == "2.0"
    replication = {
        "partitions": 1, "leaders": 1, "offline_partitions": 0, "under_replicated_partitions": 0,
        "under_min_isr_partitions": 0, "isr_shrinks_total": 0, "isr_expands_total": 0, "isr_update_failures_total": 0,
        "follower_max_lag": 0, "active_controller": 1, "history_written_total": 0, "history_dropped_total": 0,
        "history_waiting": 0, "cluster_brokers": 1, "cluster_topics": 1, "cluster_partitions": 1,
        "cluster_leaderless_partitions": 0, "cluster_not_preferred_leaders": 0, "cluster_reassigning_partitions": 0,
        "cluster_topics_to_delete": 0,
    }  # fmt: skip
    assert {name: float(told[f"sparklog_{name}"]) for name in replication} == replication
