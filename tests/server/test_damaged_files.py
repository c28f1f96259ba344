"""Files of a log directory that were damaged while no broker ran: losses and messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.testing import RunningBroker, start_broker
from support.patience import wait_until

PLACES = [TopicPartition("t", number) for number in range(3)]
COUNT = 300
SETTINGS = {"auto_create_topics_enable": False}

pytestmark = pytest.mark.slow


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A log directory with three partitions of several closed segments each, after a clean stop."""
    with start_broker(tmp_path, **SETTINGS) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topic("t", partitions=3, configs={"internal.segment.bytes": "20000"})
        with Producer(bootstrap_servers=broker.bootstrap, batch_size=2_000, linger_ms=0) as producer:
            for number in range(3 * COUNT):
                producer.send("t", b"%d" % number * 40, partition=number % 3)
    assert len(list(tmp_path.glob("t-0/*.log"))) > 2
    return tmp_path


def count(broker: RunningBroker, place: TopicPartition) -> int:
    with Consumer(bootstrap_servers=broker.bootstrap) as reader:
        reader.assign([place])
        reader.seek(place, 0)
        found: list[int] = []

        def to_the_end() -> bool:
            found.extend(record.offset for record in reader.poll(100))
            return len(found) >= COUNT

        wait_until(to_the_end, f"{place} is read", tell=lambda: len(found))
        return len(found)


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("garbage", [b"\xff" * 8, b"\x00\x7f" * 60, b"garbage"])
def test_garbage_in_any_index_takes_nothing_offline(stopped: Path, suffix: str, garbage: bytes) -> None:
    for number, path in enumerate(sorted(stopped.glob(f"t-*/*.{suffix}"))):
        path.write_bytes(garbage if number % 2 else path.read_bytes() + garbage)
    with start_broker(stopped, **SETTINGS) as broker:
        assert [count(broker, place) for place in PLACES] == [COUNT] * 3
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            assert producer.send("t", b"more", partition=0).result(60).offset == COUNT
        assert not broker.node.broker.services.replicas.offline


def test_a_partition_that_has_lost_a_file_is_offline_and_no_other(
    stopped: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lost = sorted(stopped.glob("t-1/*.log"))[1]
    lost.write_bytes(b"")
    with start_broker(stopped, **SETTINGS) as broker:
        assert [count(broker, place) for place in (PLACES[0], PLACES[2])] == [COUNT] * 2
        assert list(broker.node.broker.services.replicas.offline) == [PLACES[1]]
        assert f"{lost} is empty: flushed records are lost, from offset {int(lost.stem)} on" in caplog.text


@pytest.mark.parametrize("content", ["", "#\n", "version=1\n", "rubbish", "node.id=one\n"])
def test_a_log_directory_of_which_nobody_says_whose_it_is_says_what_to_do(stopped: Path, content: str) -> None:
    (stopped / "meta.properties").write_text(content)
    with pytest.raises(ConfigError, match=r"meta.properties: .* restore it; or, .* of broker \d+, remove it"):
        start_broker(stopped, **SETTINGS).__enter__()
    (stopped / "meta.properties").unlink()
    with start_broker(stopped, **SETTINGS) as broker:
        assert count(broker, PLACES[0]) == COUNT
