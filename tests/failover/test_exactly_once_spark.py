"""A topic is copied by Spark into another one, and from there into a Delta table, over drivers and brokers that are
killed: each record is once in both, for readers of committed records.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from sparklog.base.java_hash import partition_for
from sparklog.client import Admin
from support.clients.exactly_once_spark import BATCH, STARTED
from support.clients.pipelines import CommittedReader, Pipeline, feed, python_program
from support.patience import wait_until
from support.processes.cluster import ClusterProcesses
from support.runs.seeds import seeds

# Sessions that are killed begin again some ten times, each with all cores of a small machine: too long beside others.
pytestmark = [pytest.mark.soak_only, pytest.mark.soak, pytest.mark.jvm, pytest.mark.timeout(1_200)]
SOURCE, TARGET = "source", "target"
PARTITIONS, PORTION, STATE_PARTITIONS = 3, 300, 3
MOST_STARTS = 8


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(
        tmp_path, transaction_state_log_num_partitions=STATE_PARTITIONS, transaction_state_log_replication_factor=3,
        transaction_state_log_min_isr=2,
    ) as running:  # fmt: skip
        with Admin(bootstrap_servers=running.grpc) as admin:
            admin.create_topic(SOURCE, partitions=PARTITIONS)
            admin.create_topic(TARGET, partitions=PARTITIONS)
        running.wait_for_isr(3, SOURCE, TARGET)
        yield running


@pytest.mark.parametrize("seed", seeds(1, soak=10))
def test_spark_copies_each_record_once_though_drivers_and_brokers_are_killed(
    cluster: ClusterProcesses, tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    fed = 0
    folder = tmp_path / "spark"
    folder.mkdir()
    reader = CommittedReader(cluster.kafka, TARGET, PARTITIONS)
    victims = ["leader", "coordinator", "driver", "driver after a commit"]
    chance.shuffle(victims)
    command = [*python_program("exactly_once_spark"), cluster.grpc, SOURCE, TARGET, str(folder)]
    with Pipeline(command) as pipeline:

        def feed_more() -> None:
            nonlocal fed
            feed(cluster.kafka, SOURCE, PARTITIONS, range(fed, fed + PORTION))
            fed += PORTION

        def count(word: str) -> int:
            return sum(line.startswith(word) for line in pipeline.lines)

        def wait(find: Callable[[], bool], what: str) -> None:
            """A session that starts again has its own time for that."""
            for _ in range(MOST_STARTS):
                starts = count(STARTED)
                wait_until(lambda starts=starts: find() or count(STARTED) > starts, what,
                           tell=lambda: f"{len(reader.seen)} read, {pipeline.lines[-5:]}\n{cluster.logs}")  # fmt: skip
                if find():
                    return
            pytest.fail(f"the pipeline started {MOST_STARTS} times, and not yet: {what}")

        def wait_for_progress() -> None:
            before = count(BATCH)
            wait(lambda: count(BATCH) > before or reader.read() == fed, "the pipeline goes on")

        for victim in victims:
            feed_more()
            wait_for_progress()
            if victim == "driver":
                time.sleep(chance.random())  # anywhere in a batch
                pipeline.kill()
            elif victim == "driver after a commit":
                (folder / "kill").touch()
                feed_more()
                wait(lambda: not (folder / "kill").exists(), "a driver has died after a commit")
            else:
                broker = cluster.brokers[broker_of(cluster, victim, folder)]
                broker.kill()
                feed_more()
                wait_for_progress()
                broker.start()
                cluster.wait_for_isr(3, SOURCE, TARGET)
        feed_more()
        while reader.read() < fed:
            wait_for_progress()
        reader.close()
        (folder / "finish").touch()
        wait(lambda: f"table {fed} {fed}" in pipeline.lines, "everything is in the table")

    again = CommittedReader(cluster.kafka, TARGET, PARTITIONS)
    wait_until(lambda: again.read() == fed, "everything is read again")
    assert again.seen == Counter(range(fed))
    again.close()


def broker_of(cluster: ClusterProcesses, victim: str, folder: Path) -> int:
    if victim == "leader":
        return cluster.leader(TARGET, 0)
    query_id = json.loads((folder / "copy" / "metadata").read_text())["id"]
    return cluster.leader("__transaction_state", partition_for(f"spark-{query_id}", STATE_PARTITIONS))
