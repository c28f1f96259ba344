"""Which cluster store a broker's configuration names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.base.config import Setting, parse_broker_config
from sparklog.base.errors import ConnectionLoss
from sparklog.cluster.engines import open_store, session_timeout_ms


@pytest.mark.parametrize("named", ["", "shared/cluster.db"])
def test_without_zookeeper_the_store_is_a_file(tmp_path: Path, named: str) -> None:
    (tmp_path / "shared").mkdir()
    values = {"log.dirs": str(tmp_path), "cluster.store": named and str(tmp_path / named)}
    config = parse_broker_config([Setting(name, raw, "") for name, raw in values.items()])
    store = open_store(config)
    store.create("/a")
    store.close()
    assert (tmp_path / (named or "cluster.sqlite")).exists()
    assert session_timeout_ms(config) == 6_000


def test_a_zookeeper_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    values = {
        "log.dirs": str(tmp_path),
        "zookeeper.connect": "127.0.0.1:1/brokers",
        "zookeeper.connection.timeout.ms": "50",
        "zookeeper.session.timeout.ms": "700",
    }
    config = parse_broker_config([Setting(name, raw, "") for name, raw in values.items()])
    with pytest.raises(ConnectionLoss, match=r"127\.0\.0\.1:1"):
        open_store(config)
    assert session_timeout_ms(config) == 700


@pytest.mark.slow
def test_kazoo_is_loaded_only_for_zookeeper() -> None:
    code = "import sys, sparklog.cluster.engines; sys.exit('kazoo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
