"""Secrets are in no log, error or metric: successful and failed logins of every mechanism, then a search."""

from __future__ import annotations

import base64
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
import scramp
import trustme
from click.testing import CliRunner

from sparklog.base.jaas import PLAIN_MODULE
from sparklog.cli import users
from sparklog.v1 import admin_pb2, admin_pb2_grpc
from support.issuer import AUDIENCE, ISSUER, Issuer
from support.kafka.connection import Wire
from support.patience import PATIENCE_S, wait_until
from support.processes.broker import BrokerProcess
from support.processes.ports import reserve_port

DESCRIBE_CONFIGS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 32, 17, 36
PLAIN_SECRET, PLAIN_WRONG, BROKER_SECRET = "plain-hunter2", "plain-wrong2", "broker-hunter2"
SCRAM_SECRET, SCRAM_WRONG, KEY_SECRET = "scram-hunter2", "scram-wrong2", "key-hunter2"


def exchange(wire: Wire, mechanism: str, *messages: Any) -> list[Any]:
    """The answers to messages; a message may be a function of the answer before it."""
    assert wire.send(SASL_HANDSHAKE, 1, mechanism=mechanism).error_code == 0
    answers: list[Any] = []
    for message in messages:
        sent = message(answers[-1]) if callable(message) else message
        answers.append(wire.send(SASL_AUTHENTICATE, 2, auth_bytes=sent))
    return answers


def scram(wire: Wire, password: str) -> int:
    """The error code of the last answer."""
    client = scramp.ScramClient(["SCRAM-SHA-256"], "bob", password)

    def final(challenge: Any) -> bytes:
        client.set_server_first(challenge.auth_bytes.decode())
        return client.get_client_final().encode()

    return int(exchange(wire, "SCRAM-SHA-256", client.get_client_first().encode(), final)[-1].error_code)


def call(address: str, authorization: str) -> Any:
    """The answers of ListTopics and DescribeConfigs, or the error."""
    with grpc.insecure_channel(address) as channel:
        stub, metadata = admin_pb2_grpc.AdminStub(channel), [("authorization", authorization)]
        try:
            stub.ListTopics(admin_pb2.ListTopicsRequest(), timeout=PATIENCE_S, metadata=metadata)
            resource = admin_pb2.ConfigResource(type=admin_pb2.BROKER, name="0")
            asked = admin_pb2.DescribeConfigsRequest(resources=[resource])
            return stub.DescribeConfigs(asked, timeout=PATIENCE_S, metadata=metadata)
        except grpc.RpcError as error:
            return error


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def forms(secret: str) -> list[bytes]:
    """A secret as text, and in base64 at every alignment."""
    plain = secret.encode()
    coded = (base64.b64encode(b"x" * shift + plain)[4 * (shift > 0) : -4] for shift in range(3))
    return [plain, *coded]


@pytest.mark.slow
def test_no_secret_is_logged_shown_or_stored(tmp_path: Path) -> None:
    issuer, folder = Issuer(), tmp_path / "broker"
    folder.mkdir()
    keystore = tmp_path / "server.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(keystore)
    config = tmp_path / "broker.toml"
    jaas = f'{PLAIN_MODULE} required username="broker" password="{BROKER_SECRET}" user_alice="{PLAIN_SECRET}"'
    config.write_text(f"\"plain.sasl.jaas.config\" = '''{jaas};'''\n\"ssl.key.password\" = \"{KEY_SECRET}\"\n")
    metrics = f"127.0.0.1:{reserve_port(issuer)}"
    process = BrokerProcess(
        folder, "grpc.security.protocol=SASL_PLAINTEXT", f"ssl.keystore.location={keystore}",
        "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT", f"metrics.listener={metrics}",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        f"sasl.oauthbearer.jwks.endpoint.url={issuer.publish(tmp_path / 'keys.json')}",
        f"sasl.oauthbearer.expected.issuer={ISSUER}", f"sasl.oauthbearer.expected.audience={AUDIENCE}",
        "connection.failed.authentication.delay.ms=1", config=config, log_level="debug",
    )  # fmt: skip
    host, _, port = process.kafka.rpartition(":")
    token, wrong_token, expired = issuer.token(), Issuer().token(), issuer.token(valid_s=-1)
    shown: list[Any] = []

    def wire() -> Wire:
        return Wire((host, int(port)))

    arguments = ["add", "bob", "--data-dir", str(folder / "data")]
    added = CliRunner().invoke(users.command, arguments, input=SCRAM_SECRET + "\n", catch_exceptions=False)
    shown.append(added.output)
    with process:
        with wire() as admin:
            [answer] = exchange(admin, "PLAIN", f"\0alice\0{PLAIN_SECRET}".encode())
            assert answer.error_code == 0
            resource = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
            shown.append(admin.send(DESCRIBE_CONFIGS, 4, resources=[resource], include_documentation=True))
        for message in (f"\0alice\0{PLAIN_WRONG}", f"\0nobody\0{PLAIN_WRONG}", f"alice{PLAIN_WRONG}"):
            with wire() as stranger:
                shown += exchange(stranger, "PLAIN", message.encode())
                assert shown[-1].error_code != 0
        for password, status in ((SCRAM_SECRET, 0), (SCRAM_WRONG, 58)):
            with wire() as client:
                assert scram(client, password) == status
        for each, status in ((token, 0), (wrong_token, 58), (expired, 58)):
            with wire() as client:
                first = f"n,,\x01auth=Bearer {each}\x01\x01".encode()
                shown += exchange(client, "OAUTHBEARER", first, *([b"\x01"] if status else []))
                assert shown[-1].error_code == status
        for authorization in (basic("alice", PLAIN_SECRET), basic("bob", SCRAM_SECRET), f"Bearer {token}"):
            shown.append(call(process.grpc, authorization))
            assert "plain.sasl.jaas.config" in str(shown[-1])
        for authorization in (
            basic("alice", PLAIN_WRONG), basic("bob", SCRAM_WRONG), basic("nobody", PLAIN_WRONG),
            f"Basic {PLAIN_WRONG}", f"Bearer {wrong_token}",
            f"Bearer {expired}", f"Digest {PLAIN_WRONG}", PLAIN_WRONG,
        ):  # fmt: skip
            shown.append(call(process.grpc, authorization))
            assert shown[-1].code() is grpc.StatusCode.UNAUTHENTICATED
        config.write_text(config.read_text().replace("user_alice", "alice"))  # a file of no use
        wait_until(lambda: "users of PLAIN stay as they were" in process.log, "the file is refused")
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=PATIENCE_S) as response:
            shown.append(response.read())

    places = {"what clients are told": repr(shown).encode(), "the log": process.log.encode()}
    places |= {str(file): file.read_bytes() for file in (folder / "data").rglob("*") if file.is_file()}
    assert any(name.endswith("cluster.sqlite") for name in places)
    key = keystore.read_text().splitlines()[3]
    secrets = {
        PLAIN_SECRET, PLAIN_WRONG, BROKER_SECRET, SCRAM_SECRET, SCRAM_WRONG, KEY_SECRET, key,
        *(part for each in (token, wrong_token, expired) for part in each.split(".")[1:]),
    }  # fmt: skip
    found = [(secret, name) for secret in secrets for name, content in places.items()
             if any(form in content for form in forms(secret))]  # fmt: skip
    assert not found
