"""Records with versions: a tombstone may delete later records; records below the log start delete none."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog.base.errors import NetworkException
from sparklog.base.ids import TopicPartition
from sparklog.client import Maintenance
from sparklog.spark.compaction.shuffle import compact_by_shuffle
from sparklog.spark.compaction.task import compact_in_task
from support.jobs.compactions import COMPACTED, NOW_MS, close_segments, consume, rows_of, settings_of, works_of

VERSIONED = COMPACTED | {"compaction_strategy": "timestamp"}
LARGE = "x" * 15_000
"""So that two of them do not fit in a segment's group."""


def send(topics, topic, key, value, timestamp_ms, partition=0):
    columns = {
        "key": [key],
        "value": pa.array([value], pa.string()),
        "timestamp": pa.array([timestamp_ms], pa.timestamp("ms", "UTC")),
    }
    topics.producer.send_table(topic, pa.table(columns), partition=partition).result(30)


def run(topics, topic, later_ms=0):
    ((_, outcome),) = compact_in_task(
        works_of(topics.bootstrap, topic).values(), settings_of(topics.bootstrap, now_ms=NOW_MS + later_ms)
    )
    return outcome


@pytest.mark.slow
def test_a_run_that_dies_after_its_first_group_brings_back_nothing_that_an_earlier_tombstone_deleted(
    topics, monkeypatch
):
    topic = topics.create(**VERSIONED)
    send(topics, topic, "other", LARGE, NOW_MS)
    send(topics, topic, "a", None, NOW_MS)
    close_segments(topics, topic)
    first = run(topics, topic)
    assert first.next_delete_horizon_ms == NOW_MS
    send(topics, topic, "a", LARGE, NOW_MS - 1000)  # older than the tombstone, though it comes later
    close_segments(topics, topic)
    assert len(works_of(topics.bootstrap, topic)[0].plan.groups) > 1
    commit, commits = Maintenance.commit_replace, []

    def commit_once(self, *arguments):
        commits.append(arguments)
        if len(commits) > 1:
            raise NetworkException("gone")
        return commit(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Maintenance, "commit_replace", commit_once)
        assert run(topics, topic, 1).outcome == "failed"
    outcome = run(topics, topic, 2)
    assert (outcome.outcome, outcome.next_delete_horizon_ms) == ("compacted", None)
    assert rows_of(consume(topics.bootstrap, topic)) == [(b"other", LARGE.encode())]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["task", pytest.param("shuffle", marks=pytest.mark.spark)])
def test_what_lies_below_the_log_start_deletes_nothing(request, topics, way):
    topic = topics.create(**VERSIONED | {"cleanup_policy": "compact,delete"})
    send(topics, topic, "a", "deleted", NOW_MS)
    send(topics, topic, "a", "newest", NOW_MS - 1000)
    close_segments(topics, topic)
    topics.admin.delete_records({TopicPartition(topic, 0): 1})
    if way == "task":
        run(topics, topic)
    else:
        spark = request.getfixturevalue("spark")
        compact_by_shuffle(spark, [works_of(topics.bootstrap, topic)[0]], settings_of(topics.bootstrap))
    assert rows_of(consume(topics.bootstrap, topic)) == [(b"a", b"newest")]
