"""Leader epochs without records after compaction are no truncation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer
from sparklog.testing import RunningBroker, start_broker
from support.logs.folders import write_folder
from support.patience import wait_until

T0 = TopicPartition("t", 0)
KEPT = [*range(3), *range(10, 16)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    write_folder(tmp_path / "t-0", batches=[(0, 0), (10, 1), (13, 1)], epochs=[(0, 0), (1, 5)])
    with start_broker(tmp_path) as running:
        yield running


def consumer(broker: RunningBroker) -> Consumer:
    """A consumer that raises LogTruncation and fetches one batch per request."""
    return Consumer(
        bootstrap_servers=broker.bootstrap, group_id="g", auto_offset_reset="none", max_partition_fetch_bytes=1
    )


def read(reader: Consumer, count: int) -> list[int]:
    found: list[int] = []

    def enough() -> bool:
        found.extend(record.offset for record in reader.poll(100, max_records=count - len(found)))
        return len(found) >= count

    wait_until(enough, f"{count} records are read", tell=lambda: found)
    return found


@pytest.mark.slow
def test_all_that_is_left_is_read_from_one_fetch_to_the_next(broker: RunningBroker) -> None:
    with consumer(broker) as reader:
        reader.assign([T0])
        reader.seek(T0, 0)
        assert read(reader, len(KEPT)) == KEPT


@pytest.mark.slow
def test_who_has_read_up_to_the_gap_goes_on_behind_it_after_a_restart(broker: RunningBroker) -> None:
    with consumer(broker) as reader:
        reader.assign([T0])
        reader.seek(T0, 0)
        assert read(reader, 3) == [0, 1, 2]
        reader.commit()
    with consumer(broker) as reader:
        reader.assign([T0])
        assert read(reader, 6) == KEPT[3:]
