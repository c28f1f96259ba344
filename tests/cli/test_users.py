"""`sparklog users`."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.cli import run
from support.clients.command_result import CommandResult
from support.processes.zookeeper import ZooKeeperServer

Users = Callable[..., CommandResult]


@pytest.fixture
def users(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Users:
    """Runs `sparklog users` on the test's own folder, with a standard input."""

    def command(*arguments: str, typed: str = "") -> CommandResult:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        status = run(["users", *arguments, "--data-dir", str(tmp_path / "data")])
        printed = capsys.readouterr()
        return CommandResult(status, printed.out, printed.err)

    return command


def test_users_come_and_go_before_a_broker_was_there(users: Users) -> None:
    assert users("add", "alice", typed="secret\n").status == 0
    assert users("add", "bob", "--mechanism", "SCRAM-SHA-512", "--iterations", "8192", typed="secret").status == 0
    assert users("list").out.splitlines() == [
        "USER   MECHANISM      ITERATIONS",
        "alice  SCRAM-SHA-256        4096",
        "alice  SCRAM-SHA-512        4096",
        "bob    SCRAM-SHA-512        8192",
    ]

    assert users("delete", "alice").out == "deleted SCRAM-SHA-256, SCRAM-SHA-512 of user alice\n"
    again = users("delete", "alice")
    assert (again.status, again.err) == (1, "sparklog: there is no user 'alice' with such a credential\n")


def test_a_password_is_needed(users: Users) -> None:
    assert users("add", "alice", typed="\n").status == 2


def test_a_folder_that_is_no_brokers_is_not_made_into_one(users: Users, tmp_path: Path) -> None:
    assert users("list").status == 2
    assert not (tmp_path / "data").exists()


def test_a_broker_whose_store_is_elsewhere_gets_no_users_that_it_would_not_see(users: Users, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")

    refused = users("add", "alice", typed="secret\n")

    assert refused.status == 2
    assert (
        "has no cluster.sqlite: its broker has another store; name it with --config FILE or --zookeeper" in refused.err
    )
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["meta.properties"]


def test_the_store_that_a_configuration_names_has_the_users(users: Users, tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text(f'cluster.store = "{tmp_path}/shared.sqlite"\n')
    named = ("--config", str(tmp_path / "broker.toml"))
    assert users("add", "alice", *named, typed="secret\n").status == 0
    assert "alice" in users("list", *named).out
    assert (tmp_path / "shared.sqlite").exists()


@pytest.mark.jvm
@pytest.mark.slow
def test_users_of_a_cluster_with_zookeeper(users: Users, tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    try:
        there = ("--zookeeper", server.address)
        assert users("add", "alice", *there, typed="secret\n").status == 0
        assert "alice  SCRAM-SHA-512" in users("list", *there).out
        assert users("delete", "alice", *there).status == 0
        assert users("list", *there).out == ""
    finally:
        server.stop()
    assert not (tmp_path / "data").exists()
