"""conf/docker, conf/systemd and conf/kubernetes: what they start is run here from the wheel, without their daemons.

Paths and ports of the files are replaced by those of the test. Where this process is root, the broker runs as another
user, who may read everything and writes only into the folder that stands for its volume.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparklog.base.config import BrokerConfig, parse_broker_config
from sparklog.base.config_file import read_environment
from sparklog.broker.controlled_shutdown import longest_hand_over_ms
from sparklog.client import Admin
from sparklog.log.directory.open_files import LEAST
from support import ROOT
from support.environments import build_wheel, make_environment, variables
from support.patience import PATIENCE_S, wait_until
from support.processes.output import first_line
from support.processes.ports import reserve_port
from support.processes.probes import probe
from support.processes.zookeeper import ZooKeeperServer

DOCKERFILE = ROOT / "conf" / "docker" / "Dockerfile"
UNIT = ROOT / "conf" / "systemd" / "sparklog.service"
MANIFEST = ROOT / "conf" / "kubernetes" / "sparklog.yaml"
VOLUME, MARKER = "/var/lib/sparklog", ".kafka_cleanshutdown"
NOBODY = 65534
UNPRIVILEGED = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search",
)  # fmt: skip
CAN_BE_NOBODY = os.geteuid() == 0 and shutil.which("setpriv") is not None

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Image:
    """What the Dockerfile says."""

    def __init__(self) -> None:
        text = re.sub(r"\\\n", "", re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE))
        steps = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
        self.steps = {name: value for name, value in steps if name != "COPY"}
        self.env = dict(each.split("=", 1) for each in shlex.split(self.steps["ENV"]))
        self.entrypoint: list[str] = json.loads(self.steps["ENTRYPOINT"])
        self.health_check: list[str] = json.loads(self.steps["HEALTHCHECK"].partition(" CMD ")[2])

    @property
    def config(self) -> BrokerConfig:
        return config_of(self.env)


def config_of(environment: Mapping[str, str]) -> BrokerConfig:
    """The broker's configuration; fails where a key is unknown or a value wrong."""
    return parse_broker_config(read_environment(environment))


class Place:
    """Where a test runs what a file starts: free ports, and a folder for the volume."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        if CAN_BE_NOBODY:
            os.chown(folder, NOBODY, NOBODY)
        self.folder = folder
        self.ports = {number: reserve_port(self) for number in (9092, 9094, 9104)}

    def put(self, text: str) -> str:
        """The text with the paths and ports of this place."""
        text = text.replace(VOLUME, str(self.folder))
        for number, port in self.ports.items():
            text = re.sub(rf"\b(0\.0\.0\.0|127\.0\.0\.1):{number}\b", f"127.0.0.1:{port}", text)
        return text

    @property
    def metrics(self) -> str:
        return f"127.0.0.1:{self.ports[9104]}"


@contextmanager
def running(
    command: list[str], environment: Mapping[str, str], place: Place
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The process, once it has said that it is ready, and its log; it is stopped by SIGTERM, and must end well."""
    log = place.folder.with_name("log")
    prefix = UNPRIVILEGED if CAN_BE_NOBODY else ()
    with log.open("w") as written:
        process = subprocess.Popen(
            [*prefix, *command], env=environment, cwd=place.folder, stdout=subprocess.PIPE, stderr=written, text=True
        )
    try:
        assert " ready: grpc " in first_line(process), log.read_text()
        yield process, log
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, log.read_text()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel = build_wheel(tmp_path_factory.mktemp("dist"))
    return make_environment(tmp_path_factory.mktemp("environment") / "venv", wheel, "sparklog")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "volume")


def uid_of(process: subprocess.Popen[str]) -> int:
    [line] = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("Uid:")]
    return int(line.split()[1])


def test_the_image_needs_no_root_and_keeps_its_data_in_the_volume() -> None:
    image = Image()
    assert re.fullmatch(r"python:3\.\d+-slim", image.steps["FROM"])
    assert int(image.steps["USER"]) > 0
    assert image.steps["VOLUME"] == image.steps["WORKDIR"] == image.env["HOME"] == VOLUME
    config = image.config
    assert all(folder.startswith(f"{VOLUME}/") for folder in config.log_dirs)
    addresses = (config.listeners[0], config.grpc_listener, config.metrics_listener)
    assert image.steps["EXPOSE"].split() == [each.rpartition(":")[2] for each in addresses]


def test_the_image_s_process_is_healthy_logs_json_and_stops_cleanly_at_sigterm(bin_folder: Path, place: Place) -> None:
    image = Image()
    environment = variables(bin_folder, **{name: place.put(value) for name, value in image.env.items()})
    health_check = [place.put(word) for word in image.health_check]

    def health() -> int:
        return subprocess.run(health_check, env=environment, check=False, capture_output=True).returncode

    assert health() != 0
    with running([*image.entrypoint, *json.loads(image.steps["CMD"])], environment, place) as (process, log):
        assert uid_of(process) == (NOBODY if CAN_BE_NOBODY else os.geteuid())
        wait_until(lambda: health() == 0, "the image is healthy", tell=log.read_text)
    assert health() != 0
    assert (place.folder / "data" / MARKER).exists()
    assert [json.loads(line)["level"] for line in log.read_text().splitlines()]


def unit() -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(UNIT)
    return found


def test_the_unit_s_process_reads_its_file_and_stops_cleanly(bin_folder: Path, place: Place, tmp_path: Path) -> None:
    service = unit()["Service"]
    config = tmp_path / "broker.toml"
    config.write_text(
        place.put(
            f'log.dirs = "{VOLUME}"\ngrpc.listener = "127.0.0.1:9094"\nlisteners = "PLAINTEXT://127.0.0.1:9092"\n'
        )
    )
    command = service["ExecStart"].replace("/etc/sparklog/broker.toml", str(config))
    command = command.replace("/opt/sparklog/bin", str(bin_folder))
    environment = variables(bin_folder, HOME="/nowhere", NUMBA_CACHE_DIR=str(place.folder))
    with running(command.split(), environment, place) as (process, _):
        assert uid_of(process) == (NOBODY if CAN_BE_NOBODY else os.geteuid())
    assert (place.folder / MARKER).exists()


def test_the_unit_gives_a_stop_its_time_and_a_broker_its_files() -> None:
    service, config = unit()["Service"], BrokerConfig()
    stop_ms = longest_hand_over_ms(config) + 2 * config.controlled_shutdown_timeout_ms
    assert int(service["TimeoutStopSec"]) * 1000 >= 2 * stop_ms
    assert int(service["LimitNOFILE"]) > LEAST
    assert service["User"] not in ("", "root")
    [pod] = [each["spec"]["template"]["spec"] for each in manifest() if each["kind"] == "StatefulSet"]
    assert pod["terminationGracePeriodSeconds"] * 1000 >= 2 * stop_ms


def test_systemd_has_nothing_to_complain_of_where_it_is(bin_folder: Path, tmp_path: Path) -> None:
    copied = tmp_path / UNIT.name
    copied.write_text(UNIT.read_text().replace("/opt/sparklog/bin", str(bin_folder)))
    complaints: list[str] = []
    if systemd_analyze := shutil.which("systemd-analyze"):
        done = subprocess.run([systemd_analyze, "verify", copied], capture_output=True, text=True, check=False)
        complaints = [line for line in done.stderr.splitlines() if "sparklog" in line]
    assert complaints == []
    assert unit().sections() == ["Unit", "Service", "Install"]


def manifest() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(MANIFEST.read_text()))


def environment_of(container: dict[str, Any], pod: Mapping[str, str]) -> dict[str, str]:
    """The container's environment, as Kubernetes makes it. pod: the values of its fields."""
    found: dict[str, str] = {}
    for each in container["env"]:
        value = each["value"] if "value" in each else pod[each["valueFrom"]["fieldRef"]["fieldPath"]]
        found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], value)
    return found


def test_the_manifest_s_parts_fit_together() -> None:
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for each in manifest():
        by_kind.setdefault(each["kind"], []).append(each)
    [stateful_set], [budget] = by_kind["StatefulSet"], by_kind["PodDisruptionBudget"]
    spec = stateful_set["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == budget["spec"]["selector"]["matchLabels"] == labels
    headless, client = by_kind["Service"]
    assert headless["metadata"]["name"] == spec["serviceName"]
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    [container] = spec["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    for service in (headless, client):
        assert service["spec"]["selector"] == labels
        assert all(each["port"] == ports[each["targetPort"]] for each in service["spec"]["ports"])
    assert [ports[name] for name in ("kafka", "grpc", "metrics")] == [*map(int, Image().steps["EXPOSE"].split())]
    [anti_affinity] = spec["template"]["spec"]["affinity"]["podAntiAffinity"].values()
    assert anti_affinity[0]["labelSelector"]["matchLabels"] == labels
    [template] = spec["volumeClaimTemplates"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts[template["metadata"]["name"]] == VOLUME
    configs = [config_of(Image().env | environment_of(container, pod_fields(number))) for number in range(3)]
    assert [config.broker_id for config in configs] == [0, 1, 2]
    assert configs[2].advertised_listeners == ("PLAINTEXT://sparklog-2.sparklog-brokers:9092",)
    assert configs[0].default_replication_factor == spec["replicas"]
    assert spec["replicas"] - budget["spec"]["maxUnavailable"] >= configs[0].topic_defaults.min_insync_replicas


def pod_fields(number: int) -> dict[str, str]:
    return {
        "metadata.name": f"sparklog-{number}",
        "metadata.labels['apps.kubernetes.io/pod-index']": str(number),
    }


@pytest.mark.jvm
def test_the_manifest_s_container_runs_and_its_probes_are_answered(
    bin_folder: Path, place: Place, tmp_path: Path
) -> None:
    [pod] = [each["spec"]["template"]["spec"] for each in manifest() if each["kind"] == "StatefulSet"]
    [container] = pod["containers"]
    image, zookeeper = Image(), ZooKeeperServer(tmp_path / "zookeeper")
    given = image.env | environment_of(container, pod_fields(0))
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    zookeeper.start()
    try:
        put = {name: place.put(value).replace("zookeeper:2181", zookeeper.address) for name, value in given.items()}
        command = [*image.entrypoint, *container["args"]]
        with running(command, variables(bin_folder, **put), place) as (_, log):
            for kind, status in (("livenessProbe", "ok"), ("readinessProbe", "ready")):
                asked = container[kind]["httpGet"]
                address = place.put(f"127.0.0.1:{ports[asked['port']]}")
                expected = (200, {"status": status})
                wait_until(lambda: probe(address, asked["path"]) == expected, f"{kind} succeeds", tell=log.read_text)  # noqa: B023
            with Admin(bootstrap_servers=place.put("127.0.0.1:9094")) as admin:
                [broker] = admin.describe_cluster().brokers
            assert broker.grpc_address == "sparklog-0.sparklog-brokers:9094"
        assert (place.folder / "data" / MARKER).exists()
    finally:
        zookeeper.stop()
