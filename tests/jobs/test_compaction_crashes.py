"""Compaction that dies, or whose broker dies: no record is lost, and the next run does the rest."""

from __future__ import annotations

import dataclasses
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.client import Admin, Maintenance, Producer
from sparklog.spark.compaction.task import compact_in_task
from support import environment
from support.jobs.compactions import (
    COMPACTED,
    close_segments,
    compact,
    consume,
    expected_offsets,
    fill_alike,
    keyed_offsets,
    newest,
    settings_of,
    works_of,
)
from support.processes.broker import BrokerProcess
from support.spark_topics import Topics

STEPS = [("commit_replace", 1), ("commit_replace", 2), ("set_cleaned_offset", 1)]
"""What is called, and for the how manieth time: the process or the broker dies right before."""
SOAK_ONLY = pytest.mark.soak_only
WORKER = """
import os, signal, sys
from support.jobs.compactions import settings_of, works_of
from sparklog.client import Maintenance
from sparklog.spark.compaction.task import compact_in_task

bootstrap, topic, step, times = sys.argv[1:]
call, left = getattr(Maintenance, step), [int(times)]

def die_instead(self, *arguments):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return call(self, *arguments)

setattr(Maintenance, step, die_instead)
list(compact_in_task(works_of(bootstrap, topic).values(), settings_of(bootstrap)))
"""


def make_topic(topics):
    topic = topics.create(**COMPACTED)
    fill_alike(topics.producer, topic, (0,), random.Random(4))
    close_segments(topics, topic)
    return topic


@pytest.mark.slow
def test_a_run_after_one_that_was_killed_does_the_rest(topics, context):
    names = [make_topic(topics) for _ in STEPS]
    expected = [expected_offsets(consume(topics.bootstrap, topic)) for topic in names]
    tables = [newest(consume(topics.bootstrap, topic)) for topic in names]
    for topic, (step, times) in zip(names, STEPS, strict=True):
        command = [sys.executable, "-c", WORKER, topics.bootstrap, topic, step, str(times)]
        assert subprocess.run(command, env=environment(), check=False).returncode == -signal.SIGKILL
    assert [newest(consume(topics.bootstrap, topic)) for topic in names] == tables
    rows = compact(context, *names)
    assert {row.outcome for row in rows} == {"compacted"}
    for topic, offsets in zip(names, expected, strict=True):
        # A tombstone may be gone already: what was killed has set its horizon, and delete.retention.ms is 0.
        assert set(keyed_offsets(consume(topics.bootstrap, topic))) <= set(offsets)
        assert not list(Path(topics.folder(topic)).glob("*.cleaned"))
    assert [newest(consume(topics.bootstrap, topic)) for topic in names] == tables


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(("step", "times"), [STEPS[0], *(pytest.param(*each, marks=SOAK_ONLY) for each in STEPS[1:])])
def test_a_broker_that_is_killed_under_it_has_the_old_segments_or_the_new(tmp_path, monkeypatch, step, times):
    broker = BrokerProcess(tmp_path)
    broker.start()
    topics = TopicsOf(broker)
    topic = make_topic(topics)
    table = newest(consume(broker.grpc, topic))
    call, left = getattr(Maintenance, step), [times]

    def kill_before(self, *arguments):
        left[0] -= 1
        if not left[0]:
            broker.kill()
            # Nobody answers from now on, which need not be tried for long.
            core = self._core
            core.config = core._cluster.config = dataclasses.replace(core.config, default_api_timeout_ms=300)
        return call(self, *arguments)

    monkeypatch.setattr(Maintenance, step, kill_before)
    ((_, outcome),) = compact_in_task(works_of(broker.grpc, topic).values(), settings_of(broker.grpc))
    assert outcome.outcome == "failed"
    monkeypatch.undo()
    broker.start()
    assert newest(consume(broker.grpc, topic)) == table
    ((_, outcome),) = compact_in_task(works_of(broker.grpc, topic).values(), settings_of(broker.grpc))
    assert outcome.outcome == "compacted"
    assert newest(consume(broker.grpc, topic)) == table
    topics.close()
    broker.stop()


class TopicsOf(Topics):
    """Topics of a broker in a process of its own."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.bootstrap = broker.grpc
        self.admin = Admin(bootstrap_servers=broker.grpc)
        self.producer = Producer(bootstrap_servers=broker.grpc, linger_ms=0)
