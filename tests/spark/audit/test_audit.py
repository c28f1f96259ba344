"""Audits of log directories that Apache Kafka wrote: three replicas of one, healthy, and with every kind of fault."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from sparklog.base.errors import ConfigError
from sparklog.base.ids import TopicPartition
from sparklog.spark.audit.audit import Auditor
from sparklog.spark.audit.folders import FolderSource
from sparklog.spark.audit.tables import ClusterView
from support.logs.faulty_replicas import cut_out, directory, flip, log_of, places, remember, rewrite

pytestmark = pytest.mark.slow

ENDS = {
    "segments-0": 1500, "compacted-before-0": 2000, "codec-none-0": 200, "codec-gzip-0": 200, "codec-lz4-0": 200,
    "codec-snappy-0": 200, "codec-zstd-0": 200, "idempotent-0": 200, "transactional-0": 101, "__consumer_offsets-0": 22,
    "compacted-0": 2000,
}  # fmt: skip


@pytest.fixture
def cluster(tmp_path):
    """Three log directories with the same eleven partitions."""
    return [directory(tmp_path / f"broker-{n}", n, ENDS, compacted={"compacted-0": 1800}) for n in (1, 2, 3)]


class BrokerSourceStub:
    """Directories in the view of a cluster: broker 1 leads all partitions, and the store agrees."""

    def __init__(self, paths, **isr):
        self._folders = FolderSource([str(path) for path in paths])
        self._isr = isr

    def view(self) -> ClusterView:
        view = self._folders.view()
        replicas = [
            dataclasses.replace(
                each,
                is_leader=each.broker == 1,
                leader_epoch=0,
                log_end_offset=each.log_end_offset if each.log_end_offset >= 0 else ENDS[str(each.partition)],
            )
            for each in view.replicas
            if str(each.partition) in ENDS
        ]
        store = [(*TopicPartition.parse(name), 1, 0, [1, 2, 3], [1, 2, 3]) for name in ENDS]
        return dataclasses.replace(view, store=store, brokers=[1, 2, 3], replicas=replicas)


def audit(spark, source) -> set[tuple]:
    rows = Auditor(spark=spark, source=source).run().findings.collect()
    return {(row.severity, row.kind, row.broker, f"{row.topic}-{row.partition}", row.offset) for row in rows}


def test_nothing_is_found_on_three_healthy_replicas(spark, cluster):
    shutil.rmtree(cluster[2] / "codec-zstd-0")  # without a store nobody says that it should be there
    audited = Auditor(spark=spark, source=FolderSource([str(path) for path in cluster])).run()
    assert audited.findings.collect() == []
    read = {(f"{row.topic}-{row.partition}", row.replicas) for row in audited.partitions.collect()}
    assert read == {(name, 2 if name == "codec-zstd-0" else 3) for name in ENDS}


def test_every_planted_fault_is_found_where_it_is_and_nothing_else(spark, cluster):
    one, two, three = cluster
    flip(log_of(one / "segments-0", 240), places(log_of(one / "segments-0", 240))[1][0] + 100)
    cut_out(log_of(two / "codec-none-0"), 2)
    for base in (800, 1160, 1480, 1800):
        for batch in range(len(places(log_of(three / "compacted-before-0", base)))):
            rewrite(log_of(three / "compacted-before-0", base), batch)
    flip(log_of(two / "segments-0", 480, ".index"), 7)
    remember(three, "replication-offset-checkpoint", {**ENDS, "codec-gzip-0": 240})
    rewrite(log_of(one / "idempotent-0"), 1, epoch=0)  # the leader alone has it so
    (two / "codec-snappy-0" / "partition.metadata").write_text("version: 0\ntopic_id: CeWNTpoLSru0hj3_5YiFeQ")
    (three / "codec-lz4-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 100\n")
    log_of(three / "segments-0", 720, ".timeindex").unlink()
    log_of(two / "transactional-0", 20).write_bytes(log_of(two / "transactional-0", 20).read_bytes()[:-20])
    shutil.copytree(two / "codec-gzip-0", two / "forgotten-7")
    shutil.rmtree(three / "__consumer_offsets-0")

    assert audit(spark, BrokerSourceStub(cluster)) == {
        ("critical", "corrupt_batch", 1, "segments-0", 280),
        ("critical", "missing_batch", 2, "codec-none-0", 80),
        ("critical", "diverged", 3, "compacted-before-0", 800),
        ("warning", "wrong_index_entry", 2, "segments-0", 559),
        ("critical", "hw_above_end", 3, "codec-gzip-0", 200),
        ("critical", "diverged", 1, "idempotent-0", 40),
        ("warning", "orphan_folder", 2, "codec-snappy-0", None),
        ("warning", "epoch_disagreement", 3, "codec-lz4-0", 80),
        ("critical", "unreadable_file", 3, "segments-0", 720),
        ("info", "torn_tail", 2, "transactional-0", 96),
        ("critical", "hw_above_end", 2, "transactional-0", 96),
        ("warning", "orphan_folder", 2, "forgotten-7", None),
        ("critical", "missing_replica", 3, "__consumer_offsets-0", None),
    }


def test_segments_that_are_gone_from_the_beginning_of_a_log_are_found_and_so_is_a_log_without_any(spark, cluster):
    one, *_ = cluster
    remember(one, "log-start-offset-checkpoint", dict.fromkeys(ENDS, 0))
    log_of(one / "segments-0").unlink()
    for log in (one / "codec-gzip-0").glob("*.log"):
        log.unlink()
    (one / "new-0").mkdir()

    assert audit(spark, FolderSource([str(one)])) == {
        ("critical", "missing_batch", 1, "segments-0", 0),
        ("critical", "hw_above_end", 1, "codec-gzip-0", 0),
    }


def test_what_is_no_longer_so_at_the_second_reading_is_not_reported(spark, cluster):
    """A damaged segment is replaced by a good one while the audit runs."""
    damaged = log_of(cluster[0] / "segments-0")
    good = damaged.read_bytes()
    flip(damaged, 100)
    rewrite(log_of(cluster[1] / "codec-none-0"), 2)

    class Mended(BrokerSourceStub):
        looks = 0

        def view(self) -> ClusterView:
            self.looks += 1
            if self.looks == 2:
                damaged.with_suffix(".new").write_bytes(good)
                damaged.with_suffix(".new").rename(damaged)
            if self.looks == 3:  # trimmed: what differed is gone
                for path in cluster:
                    remember(path, "log-start-offset-checkpoint", {"codec-none-0": 120})
            return super().view()

    source = Mended(cluster)
    assert audit(spark, source) == set()
    assert source.looks == 3


def test_directories_of_two_clusters_or_twice_of_one_broker_are_refused(tmp_path, cluster):
    other = directory(tmp_path / "other", 4, {"segments-0": 1500})
    (other / "meta.properties").write_text("version=1\nnode.id=4\ncluster.id=another\n")
    with pytest.raises(ConfigError, match="several clusters"):
        FolderSource([str(cluster[0]), str(other)]).view()
    again = directory(tmp_path / "again", 1, {"segments-0": 1500})
    with pytest.raises(ConfigError, match="both of broker 1"):
        FolderSource([str(cluster[0]), str(again)]).view()
    with pytest.raises(ConfigError, match="no such folder"):
        FolderSource([str(tmp_path / "none")]).view()


def test_topics_and_the_folder_of_one_partition_can_be_chosen(cluster):
    chosen = FolderSource([str(cluster[0])], lambda topic: topic == "segments" or "codec" in topic).view()
    assert {replica.partition.topic for replica in chosen.replicas} == {
        "segments", "codec-none", "codec-gzip", "codec-lz4", "codec-snappy", "codec-zstd",
    }  # fmt: skip
    (single,) = FolderSource([f"{cluster[0]}/segments-0"]).view().replicas
    assert (single.partition, single.high_watermark) == (TopicPartition("segments", 0), 1500)
