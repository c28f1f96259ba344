"""Logs of servers on standard error, in both forms."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.patience import PATIENCE_S
from support.processes.output import first_line

UP = [sys.executable, "-m", "sparklog.cli.up", "--data-dir", "data", "--grpc", "127.0.0.1:0", "--kafka", "127.0.0.1:0"]
JSON = ["--set", "logging.format=json"]
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
MESSAGES = """
import logging, sys, warnings
from sparklog.cli.logs import log_to_stderr

log_to_stderr("info", sys.argv[1], broker=7, prefix="broker 7 ")
logging.getLogger("a.b").info("of %s", "one\\r\\n2026-11-26 INFO forged")
logging.getLogger("a.b").debug("too little")
warnings.warn("old")
try:
    raise ValueError("why")
except ValueError:
    logging.getLogger("a.b").exception("failed")
"""


def told(form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", MESSAGES, form], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    return done.stderr.splitlines()


def objects(text: str) -> list[dict[str, Any]]:
    """Each line, as a JSON object."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(RFC_3339.fullmatch(each["time"]) for each in found)
    return found


def logged_until_stopped(folder: Path, ready: str, *settings: str) -> list[dict[str, Any]]:
    """Run brokers until they are ready, stop them, and return their logs."""
    process = subprocess.Popen(
        [*UP, *JSON, *settings], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert ready in first_line(process)
        process.terminate()
        _, log = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    return objects(log)


def test_json_has_an_object_on_each_line_with_all_fields() -> None:
    first, warning, failed = objects("\n".join(told("json")))
    assert {**first, "time": ""} == {
        "time": "", "level": "INFO", "logger": "a.b", "message": "of one\r\n2026-11-26 INFO forged", "broker": 7,
    }  # fmt: skip
    assert (warning["level"], warning["logger"]) == ("WARNING", "py.warnings")
    assert "UserWarning: old" in warning["message"]
    assert (failed["level"], failed["message"]) == ("ERROR", "failed")
    assert failed["exception"].startswith("Traceback")
    assert failed["exception"].endswith("ValueError: why")


def test_text_has_each_message_on_one_line_and_tracebacks_behind_it() -> None:
    first, warning, failed, *traceback = told("text")
    assert first.endswith(r"INFO    broker 7 a.b: of one\r\n2026-11-26 INFO forged")
    assert "py.warnings: " in warning
    assert failed.endswith("ERROR   broker 7 a.b: failed")
    assert (traceback[0], traceback[-1]) == ("Traceback (most recent call last):", "ValueError: why")


@pytest.mark.slow
def test_a_broker_logs_json_from_its_start_to_its_stop_and_says_when_it_is_ready_as_ever(tmp_path: Path) -> None:
    found = logged_until_stopped(tmp_path, " ready: grpc ", "--set", "broker.id=7")
    assert {each["broker"] for each in found} == {7}
    assert {"sparklog.broker.registration", "sparklog.cli.up"} <= {each["logger"] for each in found}
    assert found[-1]["level"] == "INFO"


@pytest.mark.slow
def test_why_a_broker_could_not_start_is_json_too(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    done = subprocess.run([*UP, *JSON], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    last = objects(done.stderr)[-1]
    assert (last["level"], last["message"]) == ("CRITICAL", "sparklog up: data: File exists")


@pytest.mark.slow
def test_of_several_brokers_each_line_has_the_id_of_its_broker(tmp_path: Path) -> None:
    found = logged_until_stopped(tmp_path, " ready: 2 brokers", "--brokers", "2")
    assert {each.get("broker") for each in found} == {1, 2, None}
