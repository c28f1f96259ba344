"""Log directories with topics that the cluster store has lost: nothing is deleted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.client import Admin, Producer
from support.patience import wait_until
from support.processes.broker import BrokerProcess

QUICK = "log.retention.check.interval.ms=50"
YEAR_2001_MS = 1_000_000_000_000

pytestmark = pytest.mark.slow


def logs_in(data: Path) -> dict[str, bytes]:
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes() for path in data.glob("*/*.log") if path.stat().st_size
    }


def wait_for_retention(broker: BrokerProcess) -> None:
    """Wait until a topic without retention is empty: the same round would have deleted other records."""
    with Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic("passing", partitions=1, configs={"retention.ms": "1"})
        with Producer(bootstrap_servers=broker.grpc) as producer:
            producer.send("passing", b"x", partition=0, timestamp_ms=YEAR_2001_MS).result(60)
        wait_until(
            lambda: admin.describe_topics(["passing"])[0].partitions[0].log_start_offset == 1, "retention has passed"
        )


def test_what_kafka_wrote_stays_as_it_is(golden: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    names = [path.name for path in golden.iterdir() if path.is_dir()]
    for name in names:
        shutil.copytree(golden / name, data / name)
    before = logs_in(data)
    with BrokerProcess(tmp_path, QUICK) as broker:
        wait_for_retention(broker)
        after = {name: content for name, content in logs_in(data).items() if name in before}
        assert after.keys() == before.keys()
        adopted = {
            line.split("adopting topic ")[1].split(":")[0] for line in broker.log.splitlines() if "adopting" in line
        }
        assert adopted >= {name.rpartition("-")[0] for name in names if f"{name}/{0:020d}.log" in before}
    assert {name: content for name, content in after.items() if not content.startswith(before[name])} == {}


def remove(store: Path) -> None:
    for path in store.parent.glob(f"{store.name}*"):
        path.unlink()


def empty(store: Path) -> None:
    remove(store)
    store.touch()


def garble_changes(store: Path) -> None:
    """Damage the write-ahead log, which has the changes since the last checkpoint."""
    changes = store.with_name(f"{store.name}-wal")
    content = bytearray(changes.read_bytes())
    assert len(content) > 100_000
    changes.write_bytes(bytes(byte ^ 0x55 for byte in content))


@pytest.mark.parametrize("damage", [remove, empty, garble_changes])
def test_topics_keep_what_they_went_by(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    broker = BrokerProcess(tmp_path, QUICK, "log.retention.ms=1")
    broker.start()
    with Admin(bootstrap_servers=broker.grpc) as admin, Producer(bootstrap_servers=broker.grpc) as producer:
        admin.create_topic("kept", partitions=2, configs={"retention.ms": "-1"})
        admin.create_topic("keyed", partitions=1, configs={"cleanup.policy": "compact"})
        for topic in ("kept", "keyed"):
            producer.send(topic, b"v", key=b"k", partition=0, timestamp_ms=YEAR_2001_MS).result(60)
    broker.kill()
    damage(tmp_path / "data" / "cluster.sqlite")

    with broker:
        wait_for_retention(broker)
        with Admin(bootstrap_servers=broker.grpc) as admin:
            kept, keyed = admin.describe_topics(["kept", "keyed"])
            assert (dict(kept.configs), len(kept.partitions)) == ({"retention.ms": "-1"}, 2)
            assert dict(keyed.configs) == {"cleanup.policy": "compact"}
            ends = [(each.partitions[0].log_start_offset, each.partitions[0].high_watermark) for each in (kept, keyed)]
            assert ends == [(0, 1), (0, 1)]
        assert "restoring topic kept" in broker.log or "has lost changes" in broker.log
