"""`sparklog users`."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from ended import Ended

from sparklog.cli import run

Users = Callable[..., Ended]


@pytest.fixture
def users(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Users:
    """Runs `sparklog users` on a folder of its own, with a standard input."""

    def command(*arguments: str, typed: str = "") -> Ended:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        status = run(["users", *arguments, "--data-dir", str(tmp_path / "data")])
        printed = capsys.readouterr()
        return Ended(status, printed.out, printed.err)

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
