"""`sparklog up --brokers`: a cluster as one command: its start, dead brokers, and its stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.client import Admin, Consumer, Producer
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until
from support.processes.output import first_line

pytestmark = pytest.mark.slow
UP = [sys.executable, "-m", "sparklog.cli.up", "--brokers", "3", "--grpc", "127.0.0.1:0", "--kafka", "127.0.0.1:0"]
UP += ["--set", "cluster.store.session.timeout.ms=3000"]  # which a test waits for
ADDRESS = r"127\.0\.0\.1:\d+"
READY = re.compile(
    rf"sparklog \S+ ready: 3 brokers, grpc (({ADDRESS},?){{3}}), kafka ((PLAINTEXT://{ADDRESS},?){{3}}), data data\n"
)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*UP, "--data-dir", "data"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=PATIENCE_S)


def ready(up: subprocess.Popen[str], log: Path) -> str:
    """The addresses of the brokers."""
    said = first_line(up)
    found = READY.fullmatch(said)
    assert found, f"it is not ready: it said {said!r}\n{log.read_text()}"
    return found[1]


def children(parent: int) -> dict[int, int]:
    """The process of each broker."""
    found = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                stat, command = (process / "stat").read_text(), (process / "cmdline").read_text()
            except OSError:
                continue  # it has ended
            if stat.rpartition(")")[2].split()[1] == str(parent):
                number = re.search(r"broker\.id=(\d+)", command)
                assert number
                found[int(number[1])] = int(process.name)
    return found


def await_line(log: Path, text: str) -> str:
    wait_until(lambda: text in log.read_text(), f"{text!r} is in the log", tell=log.read_text)
    return next(line for line in log.read_text().splitlines() if text in line)


def test_three_brokers_are_a_cluster_until_ctrl_c(up: subprocess.Popen[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    addresses = ready(up, log)
    brokers = children(up.pid)
    assert set(brokers) == {1, 2, 3}
    with Admin(bootstrap_servers=addresses) as admin, Producer(bootstrap_servers=addresses) as producer:
        admin.create_topic("t")
        producer.send("t", b"before").result(PATIENCE_S)
        [topic] = admin.describe_topics(["t"])
        [partition] = topic.partitions
        assert (len(partition.replicas), topic.configs.get("min.insync.replicas", "2")) == (3, "2")
        os.kill(brokers[partition.leader], signal.SIGKILL)
        told = await_line(log, "has ended")
        assert (
            f"broker {partition.leader} has ended, killed by SIGKILL; 2 go on. This starts it again: sparklog" in told
        )
        producer.send("t", b"after").result(PATIENCE_S)
    with Consumer(bootstrap_servers=addresses, auto_offset_reset="earliest") as consumer:
        consumer.assign_topic("t")
        found: list[bytes | None] = []
        while len(found) < 2:
            records = consumer.poll(PATIENCE_MS)
            assert records, log.read_text()
            found += [record.value for record in records]
    assert found == [b"before", b"after"]

    up.send_signal(signal.SIGINT)

    assert up.wait(PATIENCE_S) == 1  # one did not stop cleanly
    assert "Traceback" not in log.read_text()
    assert not [pid for pid in brokers.values() if Path(f"/proc/{pid}").exists()]
    for number in {1, 2, 3} - {partition.leader}:
        assert (tmp_path / "data" / f"broker-{number}" / ".kafka_cleanshutdown").exists()


def test_all_stop_cleanly_and_are_a_cluster_again_until_their_parent_is_killed(
    up: subprocess.Popen[str], tmp_path: Path
) -> None:
    with Producer(bootstrap_servers=ready(up, tmp_path / "log")) as producer:
        producer.send("t", b"kept").result(PATIENCE_S)
    check_that_a_second_one_does_not_start(tmp_path)
    up.terminate()
    assert up.wait(PATIENCE_S) == 0

    with (
        (tmp_path / "log").open("a") as log,
        subprocess.Popen(
            [*UP, "--data-dir", "data"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        ) as again,
    ):
        try:
            addresses = ready(again, tmp_path / "log")
            brokers = children(again.pid)
            with Consumer(bootstrap_servers=addresses, auto_offset_reset="earliest") as consumer:
                consumer.assign_topic("t")
                [record] = consumer.poll(PATIENCE_MS)
            assert record.value == b"kept"
        finally:
            again.kill()
    told = (tmp_path / "log").read_text
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in brokers.values()), "all have ended", tell=told)


def check_that_a_second_one_does_not_start(folder: Path) -> None:
    """If one broker cannot start, none stays."""
    second = subprocess.run(
        [*UP, "--data-dir", "data"], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (second.returncode, second.stdout) == (1, "")
    assert "is used by another broker" in second.stderr
    last = second.stderr.splitlines()[-1]
    assert last == "sparklog up: broker 1, 2, 3 could not start, and has said why above: none runs"


def test_a_folder_of_one_broker_is_not_one_of_several_nor_the_other_way_round(tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "meta.properties").write_text("version=1\nnode.id=0\ncluster.id=c\n")
    (tmp_path / "several" / "broker-2").mkdir(parents=True)
    (tmp_path / "several" / "broker-2" / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=c\n")
    alone = [*UP[:3], *UP[5:]]

    for command, folder, told in (
        (UP, "alone", "alone is the log directory of one broker: start that without --brokers"),
        (alone, "several", "several is no log directory, but a folder of such: broker-2 in it is a broker's"),
    ):
        done = subprocess.run(
            [*command, "--data-dir", folder],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert told in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
