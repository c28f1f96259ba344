"""Fewer brokers than have run in a folder before: who starts them is told which are left out."""

from __future__ import annotations

from pathlib import Path

from sparklog.base.config import BrokerConfig
from sparklog.cli.up_several import left_out
from sparklog.log.directory.checkpoints import META_PROPERTIES


def test_brokers_that_have_run_here_before_are_not_forgotten(tmp_path: Path) -> None:
    for name in ("broker-1", "broker-2", "broker-3", "broker-10", "broker-new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / META_PROPERTIES).touch()
    (tmp_path / "broker-4").mkdir()
    config = BrokerConfig(log_dirs=(str(tmp_path),))
    assert left_out(config, 2) == [3, 10]
    assert left_out(config, 10) == []
