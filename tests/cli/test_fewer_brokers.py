"""Warnings of a start with fewer brokers than in an earlier run in the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.cli.up_several import brokers_for_cores, left_out
from sparklog.log.directory.checkpoints import META_PROPERTIES


def test_brokers_that_have_run_here_before_are_not_forgotten(tmp_path: Path) -> None:
    for name in ("broker-1", "broker-2", "broker-3", "broker-10", "broker-new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / META_PROPERTIES).touch()
    (tmp_path / "broker-4").mkdir()
    config = BrokerConfig(log_dirs=(str(tmp_path),))
    assert left_out(config, 2) == [3, 10]
    assert left_out(config, 10) == []


def test_a_machine_with_fewer_cores_than_before_starts_all_brokers_that_have_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BrokerConfig(broker_id=5, log_dirs=(str(tmp_path),))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert brokers_for_cores(config) == 2
    (tmp_path / "broker-8").mkdir()
    (tmp_path / "broker-8" / META_PROPERTIES).touch()
    assert brokers_for_cores(config) == 4
