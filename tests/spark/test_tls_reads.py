"""Reads from a broker whose gRPC listener speaks TLS."""

from __future__ import annotations

import pytest
import trustme

from sparklog.base.errors import NetworkException
from sparklog.client import Producer
from sparklog.testing import start_broker
from support.spark_topics import make_reader, rows_of


def test_planning_and_fetching_both_speak_tls(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    tls = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    with start_broker(grpc_security_protocol="SSL", ssl_keystore_location=str(tmp_path / "server.pem")) as broker:
        client = {key.replace(".", "_"): value for key, value in tls.items()}
        with Producer(bootstrap_servers=broker.bootstrap, **client) as producer:
            producer.send("secret", b"hello").result(10)

        options = {"bootstrap.servers": broker.bootstrap, "subscribe": "secret", "readMode": "fetch"}
        reader = make_reader({**options, **{f"kafka.{key}": value for key, value in tls.items()}})
        assert [row["value"] for row in rows_of(reader, reader.partitions())] == [b"hello"]
        with pytest.raises(NetworkException):
            make_reader({**options, "kafkaConsumer.pollTimeoutMs": "200"}).partitions()
