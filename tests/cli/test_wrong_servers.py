"""Errors of commands that reach another server than a broker: one line with the cause and the next step."""

from __future__ import annotations

import contextlib
import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from sparklog.cli import run
from sparklog.client.diagnosis import diagnose
from sparklog.testing import RunningBroker, start_broker
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow
Failing = Callable[..., str]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """server.pem and client.pem with keys, both signed by ca.pem; stranger.pem, signed by other.pem."""
    folder = tmp_path_factory.mktemp("keys")
    authority, other = trustme.CA(), trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    authority.issue_cert("billing").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    other.issue_cert("billing").private_key_and_cert_chain_pem.write_to_path(folder / "stranger.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    return folder


@contextlib.contextmanager
def with_tls(keys: Path, client_auth: str) -> Iterator[RunningBroker]:
    with start_broker(
        grpc_security_protocol="SSL",
        listeners=("SSL://127.0.0.1:0",),
        ssl_keystore_location=str(keys / "server.pem"),
        ssl_truststore_location=str(keys / "ca.pem"),
        ssl_client_auth=client_auth,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def secure(keys: Path) -> Iterator[RunningBroker]:
    with with_tls(keys, "none") as running:
        yield running


@pytest.fixture(scope="module")
def demanding(keys: Path) -> Iterator[RunningBroker]:
    """A broker that requires certificates of its clients."""
    with with_tls(keys, "required") as running:
        yield running


@pytest.fixture(scope="module")
def plain() -> Iterator[RunningBroker]:
    with start_broker(kafka=True) as running:
        yield running


@pytest.fixture
def failing(keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Failing:
    """Runs a command that does not reach a broker, and returns its error."""
    monkeypatch.setattr("sparklog.cli.common.PATIENCE_MS", 300)
    monkeypatch.setattr("sparklog.client.diagnosis.PROBE_S", PATIENCE_S)
    monkeypatch.setattr("sparklog.client.diagnosis.STEP_S", 5)

    def command(address: str, trusted: str = "", own: str = "") -> str:
        settings = tmp_path / "client.properties"
        lines = ["security.protocol=SSL", f"ssl.truststore.location={keys / trusted}"] if trusted else []
        lines += [f"ssl.keystore.location={keys / own}"] if own else []
        settings.write_text("\n".join(lines))
        assert run(["topics", "list", "--bootstrap", address, "--client-config", str(settings)]) == 1
        printed = capsys.readouterr()
        start, said = f"sparklog: no broker answers at {address}: ", printed.err
        assert printed.out == ""
        assert said.startswith(start)
        assert said.count("\n") == 1
        return said.removeprefix(start).rstrip("\n")

    return command


def test_a_port_without_anything_and_a_host_without_address(failing: Failing) -> None:
    assert failing("127.0.0.1:1") == "nothing listens there: start one with: sparklog up"
    assert failing("no-such-host.invalid:9094").startswith("the name of the host cannot be looked up: ")


def test_a_broker_without_tls(failing: Failing, plain: RunningBroker) -> None:
    told = "it speaks Kafka's protocol, not gRPC: name the broker's gRPC listener with --bootstrap"
    assert failing(plain.kafka) == failing(plain.kafka, "ca.pem") == told
    told = "it speaks gRPC without TLS: leave security.protocol=SSL out of --client-config"
    assert failing(plain.bootstrap, "ca.pem") == told


def test_a_broker_with_tls(failing: Failing, secure: RunningBroker) -> None:
    assert failing(secure.bootstrap) == "it speaks TLS: give security.protocol=SSL with --client-config"
    told = "it speaks Kafka's protocol with TLS, not gRPC: name the broker's gRPC listener with --bootstrap"
    kafka = str(secure.node.kafka_addresses["SSL"])
    assert failing(kafka) == failing(kafka, "ca.pem") == told


def test_an_authority_that_does_not_vouch_for_the_broker(failing: Failing, secure: RunningBroker) -> None:
    refused = failing(secure.bootstrap, "other.pem")
    assert refused.startswith("its certificate is not accepted: ")
    assert refused.endswith("see ssl.truststore.location in --client-config")
    another_name = failing(secure.bootstrap.replace("127.0.0.1", "localhost"), "ca.pem")
    assert another_name.startswith("its certificate is not accepted: Hostname mismatch")


def test_a_client_without_the_certificate_that_the_broker_wants(failing: Failing, demanding: RunningBroker) -> None:
    assert failing(demanding.bootstrap, "ca.pem").startswith("it wants a certificate of the client (")
    assert failing(demanding.bootstrap, "ca.pem", "stranger.pem").startswith("it refuses the client's certificate (")
    assert failing(demanding.bootstrap).startswith("it speaks TLS")


def test_what_is_no_broker(failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        monkeypatch.setattr(server.RequestHandlerClass, "log_message", lambda *_: None)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert failing(f"127.0.0.1:{server.server_port}").startswith("it speaks HTTP, not gRPC")
        server.shutdown()
    with socket.create_server(("127.0.0.1", 0)) as rude:
        threading.Thread(target=hang_up, args=(rude,), daemon=True).start()
        assert failing(f"127.0.0.1:{rude.getsockname()[1]}").startswith("what listens there is no broker")


def test_what_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.client.diagnosis.STEP_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert "does not answer: the broker hangs, or" in diagnose(f"127.0.0.1:{mute.getsockname()[1]}", {})


def hang_up(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            server.accept()[0].close()


def test_no_line_of_grpcs_own_log_stands_before_the_reason(keys: Path, secure: RunningBroker, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(f"security.protocol=SSL\nssl.truststore.location={keys / 'other.pem'}\n")
    command = [sys.executable, "-m", "sparklog", "topics", "list", "--bootstrap", secure.bootstrap]
    done = subprocess.run(
        [*command, "--client-config", str(settings)], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
