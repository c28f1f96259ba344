"""`sparklog up` as a process: output, exit statuses, and failed starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sparklog.base.config import STANDARD_AUTHORIZER, BrokerConfig
from sparklog.server.open_listeners import open_listeners
from support.patience import PATIENCE_S
from support.processes.output import first_line

UP = [sys.executable, "-m", "sparklog.cli.up"]
READY = re.compile(
    r"sparklog \d+\.\d+\.\d+ ready: grpc (127\.0\.0\.1:\d+), kafka PLAINTEXT://(127\.0\.0\.1:\d+), data (\S+)\n"
)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = ["--data-dir", "data", "--grpc", "127.0.0.1:0", "--kafka", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*UP, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def await_ready(up: subprocess.Popen[str]) -> re.Match[str]:
    said = first_line(up)
    ready = READY.fullmatch(said)
    if ready is None:
        up.kill()
        raise AssertionError(f"it is not ready: it said {said!r}\n{up.communicate()[1]}")
    return ready


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*UP, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_a_clean_stop_at_a_signal(
    number: int, up: subprocess.Popen[str], tmp_path: Path
) -> None:
    ready = await_ready(up)
    assert ready[3] == "data"
    with grpc.insecure_channel(ready[1]) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    up.send_signal(number)
    rest, log = up.communicate(timeout=PATIENCE_S)
    assert (up.returncode, rest) == (0, "")
    assert "Traceback" not in log
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.slow
def test_a_port_or_a_folder_that_is_taken_is_one_line_and_status_1(up: subprocess.Popen[str], tmp_path: Path) -> None:
    address, kafka, _ = await_ready(up).groups()
    port_taken = run("--data-dir", "other", "--grpc", address, "--kafka", "none", cwd=tmp_path)
    assert port_taken.returncode == 1
    told = f"cannot listen on {address}: Address already in use; choose another with --grpc HOST:PORT"
    assert port_taken.stderr == f"sparklog up: {told}\n"
    kafka_port_taken = run("--data-dir", "other", "--grpc", "127.0.0.1:0", "--kafka", kafka, cwd=tmp_path)
    assert kafka_port_taken.returncode == 1
    told = "choose another with --kafka HOST:PORT or `listeners`, or none with --kafka none"
    assert kafka_port_taken.stderr == f"sparklog up: cannot listen on {kafka}: Address already in use; {told}\n"
    folder_taken = run("--data-dir", "data", "--grpc", "127.0.0.1:0", "--kafka", "none", cwd=tmp_path)
    assert folder_taken.returncode == 1
    assert "is used by another broker" in folder_taken.stderr.splitlines()[-1]
    assert "Traceback" not in folder_taken.stderr
    (tmp_path / "file").touch()
    no_folder = run("--data-dir", "file", "--grpc", "127.0.0.1:0", "--kafka", "none", cwd=tmp_path)
    assert (no_folder.returncode, no_folder.stderr) == (1, "sparklog up: file: File exists\n")


@pytest.mark.slow
def test_a_wrong_configuration_is_one_line_and_status_2(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("[log]\nsegment.bytes = 5\n")
    for arguments, environment, said in (
        (
            ["--config", "broker.toml"],
            {},
            "broker.toml:2: log.segment.bytes = '5': it must be a whole number from 1048576",
        ),
        (["--set", "log.dir=/tmp"], {}, "--set: unknown key 'log.dir'; did you mean log.dirs?"),
        (
            [],
            {"SPARKLOG_CONFIG_BROKER_ID": "x"},
            "SPARKLOG_CONFIG_BROKER_ID: broker.id = 'x': it must be a whole number",
        ),
    ):
        done = run(*arguments, cwd=tmp_path, **environment)
        assert done.returncode == 2
        assert done.stderr.startswith(f"sparklog up: {said}")
        assert done.stderr.count("\n") == 1
        assert list(tmp_path.iterdir()) == [tmp_path / "broker.toml"]


@pytest.mark.slow
def test_help_names_the_defaults(tmp_path: Path) -> None:
    told = run("--help", cwd=tmp_path).stdout
    assert "./sparklog-data" in told
    assert "127.0.0.1:9094" in told
    assert "127.0.0.1:9092" in told


@pytest.mark.slow
def test_the_kafka_door_may_stay_shut(tmp_path: Path) -> None:
    taken = run("--grpc", "127.0.0.1:0", "--kafka", "nowhere", cwd=tmp_path)
    assert taken.returncode == 1
    assert taken.stderr == "sparklog up: listeners = 'nowhere': it must be HOST:PORT\n"
    process = subprocess.Popen(
        [*UP, "--grpc", "127.0.0.1:0", "--kafka", "none"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        ready = first_line(process)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert "ready: grpc" in ready
    assert "kafka" not in ready


OPEN_GRPC = ("--grpc", "0.0.0.0:0", "--kafka", "none")
OPEN_KAFKA = ("--grpc", "127.0.0.1:0", "--kafka", "0.0.0.0:0", "--set", "advertised.listeners=PLAINTEXT://host:1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (OPEN_GRPC, "grpc.listener 0.0.0.0:0"),
        (OPEN_KAFKA, "PLAINTEXT://0.0.0.0:0"),
        (("--set", "listeners=SSL://:0", "--grpc", "127.0.0.1:0"), "SSL://"),
    ],
)
def test_a_listener_that_lets_everybody_in_is_refused_with_what_to_do(
    arguments: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    refused = run(*arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert named in refused.stderr
    assert "--allow-anonymous" in refused.stderr


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"listeners": ("SASL_PLAINTEXT://0.0.0.0:0",)},
        {"listeners": ("SSL://0.0.0.0:0",), "ssl_client_auth": "required"},
        {"listeners": ("PLAINTEXT://localhost:0",)},
        {"listeners": ("PLAINTEXT://[::1]:0",)},
        {"grpc_listener": "0.0.0.0:0", "grpc_security_protocol": "SASL_SSL"},
        {"grpc_listener": "0.0.0.0:0", "authorizer_class_name": STANDARD_AUTHORIZER},
    ],
)
def test_listeners_that_ask_who_comes_or_are_of_this_machine_are_not_open(settings: dict[str, Any]) -> None:
    names = [each.partition(":")[0] for each in settings.get("listeners", ())]
    advertised = tuple(f"{name}://host:1" for name in names)
    assert open_listeners(BrokerConfig(advertised_listeners=advertised, **settings)) == []
