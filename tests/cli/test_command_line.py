"""Properties of every tool: help, errors, exit statuses, pipes."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from sparklog.cli import TOOLS, run
from sparklog.testing import RunningBroker
from support.clients.command_result import CommandResult

pytestmark = pytest.mark.slow

Sparklog = Callable[..., CommandResult]

HEAVY = {"grpc", "pyarrow", "numpy", "numba", "rich"}
HELP_LOADS = """
import sys
from sparklog.cli import run
for arguments in ("--help", "topics --help", "topics create --help", "produce --help", "consume --help"):
    assert run(arguments.split()) == 0
print(*sorted(set(sys.modules) & {names}), file=sys.stderr)
"""


def test_help_comes_without_loading_what_it_does_not_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP_LOADS.replace("{names}", repr(HEAVY))], capture_output=True, text=True, check=True
    )

    assert done.stderr.strip() == ""
    assert "sparklog topics create orders --partitions 3" in done.stdout


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_explains_itself(tool: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = importlib.import_module(f"sparklog.cli.{tool}").command
    assert isinstance(command, click.Command)

    assert run([tool, "--help"]) == 0
    assert command.help
    assert len(capsys.readouterr().out.splitlines()) > 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "sparklog: No such command 'nope': see sparklog --help"),
        (["topics", "create"], "sparklog topics create: Missing argument 'NAME': see sparklog topics create --help"),
        (["topics", "alter", "t"], "sparklog topics alter: nothing to change: give --partitions, --config or --unset"),
        (["topics", "create", "t", "--config", "x"], "sparklog topics create: 'x' is not KEY=VALUE"),
        (["consume", "t", "--offset", "1", "--from-beginning"], "exclude each other"),
        (["consume", "t", "--json", "--format", "{value}"], "exclude each other"),
        (["consume", "t", "--format", "{wrong}"], "it may name {topic}"),
        (["consume", "t", "--timestamp", "noon"], "neither milliseconds since 1970 nor a time"),
        (["consume", "t", "--timestamp", "²"], "neither milliseconds since 1970 nor a time"),
        (["produce", "t", "--json-lines", "f", "--key-separator", ":"], "are for plain lines"),
        (["topics", "list", "--bootstrap", "here"], "it must be HOST:PORT"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2

    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert message in printed.err


@pytest.mark.parametrize("arguments", [["topics", "list"], ["produce", "t"], ["consume", "t"], ["bench"]])
def test_without_a_broker_the_next_step_is_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.cli.common.PATIENCE_MS", 1_000)
    monkeypatch.setattr("sparklog.cli.consume.PATIENCE_MS", 1_000)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))

    assert run([*arguments, "--bootstrap", "127.0.0.1:1"]) == 1

    assert capsys.readouterr().err == (
        "sparklog: no broker answers at 127.0.0.1:1: nothing listens there: start one with: sparklog up\n"
    )


def test_no_arguments_at_all_show_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "A first minute" in capsys.readouterr().err


def test_the_broker_is_named_by_option_before_environment(
    sparklog: Sparklog, sparklog_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", "127.0.0.1:1")

    assert sparklog("topics", "list", "--json", "--bootstrap", sparklog_broker.bootstrap).status == 0


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_failure(sparklog: Sparklog, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(f'{{"value": "{number:0500d}"}}\n' for number in range(2_000)))
    assert sparklog("produce", "t", "--json-lines", str(lines)).status == 0
    command = [sys.executable, "-c", "from sparklog.cli import main; main()"]

    with subprocess.Popen(
        [*command, "consume", "t", "--from-beginning", "--json", "--exit-at-end"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as consume:  # fmt: skip
        assert consume.stdout
        assert consume.stderr
        assert '"offset": 0' in consume.stdout.readline()
        consume.stdout.close()
        assert consume.stderr.read() == ""

    assert consume.returncode == 0


@pytest.mark.parametrize("module", ["delta", "pyspark"])
def test_what_jobs_need_and_nobody_has_installed_is_named(
    module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("sparklog.cli.Tools.get_command", fail)
    assert run(["jobs", "run", "compaction"]) == 2
    assert capsys.readouterr().err == f"sparklog: {module} is not installed: pip install 'sparklog[spark]'\n"
