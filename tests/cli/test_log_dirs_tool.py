"""`sparklog cluster log-dirs` and `alter-log-dir`, against a broker with two log directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.cli import run
from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker, start_broker
from support.clients.command_result import CommandResult
from support.patience import wait_until

pytestmark = pytest.mark.slow

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    dirs = (str(tmp_path / "disk1"), str(tmp_path / "disk2"))
    with start_broker(tmp_path, log_dirs=dirs, cluster_history_enable=False) as running:
        with (
            Admin(bootstrap_servers=running.bootstrap) as admin,
            Producer(bootstrap_servers=running.bootstrap) as producer,
        ):
            admin.create_topic("orders", partitions=4)
            for number in range(400):
                producer.send("orders", bytes(2000), partition=number % 4)
        yield running


@pytest.fixture
def sparklog(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", broker.bootstrap)

    def command(*arguments: str) -> CommandResult:
        status = run(arguments)
        printed = capsys.readouterr()
        return CommandResult(status, printed.out, printed.err)

    return command


def test_a_directory_is_emptied_and_filled_again(sparklog: Callable[..., CommandResult], tmp_path: Path) -> None:
    disk1, disk2 = str(tmp_path / "disk1"), str(tmp_path / "disk2")
    rows = sparklog("cluster", "log-dirs", "--json").rows
    assert [(row["broker"], row["log_dir"], row["state"], row["replicas"]) for row in rows] == [
        (0, disk1, "ok", 2),
        (0, disk2, "ok", 2),
    ]
    moved = sparklog("cluster", "alter-log-dir", disk2, "--broker", "0", "--from", disk1, "--wait", "--json")
    assert moved.status == 0, moved.err
    assert [(row["log_dir"], row["copied"], row["state"]) for row in moved.rows] == [(disk2, 100, "done")] * 2
    assert [row["replicas"] for row in sparklog("cluster", "log-dirs", "--broker", "0", "--json").rows] == [0, 4]
    back = sparklog("cluster", "alter-log-dir", disk1, "--broker", "0", "--topic", "orders:1,3", "--wait")
    assert back.out.splitlines()[0].split() == ["TOPIC", "PARTITION", "LOG", "DIR", "COPIED", "%", "STATE"]
    assert [row["replicas"] for row in sparklog("cluster", "log-dirs", "--json").rows] == [2, 2]


def test_the_progress_is_shown_and_a_move_is_ended(
    sparklog: Callable[..., CommandResult], broker: RunningBroker, tmp_path: Path
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_broker_configs(0, set={THROTTLE: "1"})
    [home] = [path for path in (tmp_path / "disk1", tmp_path / "disk2") if (path / "orders-0").exists()]
    [target] = {tmp_path / "disk1", tmp_path / "disk2"} - {home}
    command = ("cluster", "alter-log-dir", str(target), "--broker", "0", "--topic", "orders:0", "--json")
    begun = sparklog(*command)
    assert begun.status == 1
    assert "1 replicas are moving: ask again" in begun.err
    wait_until(lambda: sparklog(*command).rows[0]["copied"] > 0, "a part is copied")
    assert sparklog(*command).rows[0]["state"] == "moving"
    arriving = {row["log_dir"]: row["arriving"] for row in sparklog("cluster", "log-dirs", "--json").rows}
    assert arriving == {str(home): 0, str(target): 1}
    ended = sparklog("cluster", "alter-log-dir", str(home), "--broker", "0", "--topic", "orders:0", "--json")
    assert (ended.status, ended.rows[0]["state"]) == (0, "done")
    assert {row["arriving"] for row in sparklog("cluster", "log-dirs", "--json").rows} == {0}


def test_mistakes_are_told(sparklog: Callable[..., CommandResult], tmp_path: Path) -> None:
    disk1, nowhere = str(tmp_path / "disk1"), str(tmp_path / "nowhere")
    refused = sparklog("cluster", "alter-log-dir", nowhere, "--broker", "0", "--topic", "orders", "--json")
    assert refused.status == 1
    assert all("is no log directory of this broker" in row["state"] for row in refused.rows)
    assert "it has" in sparklog("cluster", "alter-log-dir", disk1, "--broker", "0", "--from", nowhere).err
    assert "broker 7 is not up" in sparklog("cluster", "alter-log-dir", disk1, "--broker", "7", "--topic", "orders").err
    assert "broker 7 is not up" in sparklog("cluster", "log-dirs", "--broker", "7").err
    assert sparklog("cluster", "alter-log-dir", disk1, "--broker", "0").status == 2
