"""Reads from a broker whose gRPC listener speaks TLS, or wants tokens."""

from __future__ import annotations

import pytest
import trustme

from sparklog.base.errors import NetworkException, SaslAuthenticationFailed
from sparklog.client import Producer
from sparklog.testing import start_broker
from support.issuer import AUDIENCE, Issuer
from support.spark_topics import make_reader, rows_of


@pytest.mark.slow
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


@pytest.mark.slow
def test_planning_and_fetching_both_show_a_token_from_a_file(tmp_path):
    issuer, token = Issuer(), tmp_path / "token"
    token.write_text(issuer.token())
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
    }
    with start_broker(
        grpc_security_protocol="SASL_PLAINTEXT",
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_oauthbearer_jwks_endpoint_url=issuer.publish(tmp_path / "keys.json"),
        sasl_oauthbearer_expected_audience=AUDIENCE,
    ) as broker:
        client = {key.replace(".", "_"): value for key, value in login.items()}
        with Producer(bootstrap_servers=broker.bootstrap, **client) as producer:
            producer.send("secret", b"hello").result(10)

        options = {"bootstrap.servers": broker.bootstrap, "subscribe": "secret", "readMode": "fetch"}
        options |= {f"kafka.{key}": value for key, value in login.items()}
        reader = make_reader(options)
        assert [row["value"] for row in rows_of(reader, reader.partitions())] == [b"hello"]
        token.write_text(Issuer().token())
        with pytest.raises(SaslAuthenticationFailed):
            make_reader(options).partitions()
