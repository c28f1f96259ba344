"""Periodic work on all replicas of a broker: other tasks get their turns in between, and none is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.broker import background_tasks
from sparklog.client import Admin, Producer
from sparklog.log.directory.checkpoints import HIGH_WATERMARKS
from sparklog.runtime.slices import Slices
from sparklog.testing import start_broker
from support.patience import PATIENCE_S, wait_until


def test_high_watermarks_of_all_partitions_are_written_and_requests_come_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[Slices] = []
    give_way = Slices.give_way

    async def counted(slices: Slices) -> None:
        turns.append(slices)
        await give_way(slices)

    monkeypatch.setattr(background_tasks, "REPLICAS_AT_ONCE", 2)
    monkeypatch.setattr(Slices, "give_way", counted)
    with start_broker(tmp_path, replica_high_watermark_checkpoint_interval_ms=50) as broker:
        with (
            Admin(bootstrap_servers=broker.bootstrap) as admin,
            Producer(bootstrap_servers=broker.bootstrap) as producer,
        ):
            admin.create_topic("t", partitions=5)
            for partition in range(5):
                producer.send("t", b"v", partition=partition).result(PATIENCE_S)
        file = tmp_path / HIGH_WATERMARKS
        wanted = {f"t {partition} 1" for partition in range(5)}
        wait_until(lambda: file.exists() and wanted <= {*file.read_text().splitlines()}, "all are written")
        assert turns
