"""`sparklog topics`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.cli import run
from sparklog.testing import start_broker
from support.clients.command_result import CommandResult

pytestmark = pytest.mark.slow

Sparklog = Callable[..., CommandResult]


def test_a_topic_is_created_with_partitions_and_configuration(sparklog: Sparklog) -> None:
    created = sparklog("topics", "create", "orders", "--partitions", "3", "--config", "retention.ms=1000")
    assert (created.status, created.out) == (0, "created topic orders with 3 partitions\n")

    [topic] = sparklog("topics", "describe", "orders", "--json").rows

    assert topic["configs"] == {"retention.ms": "1000"}
    assert [part["partition"] for part in topic["partitions"]] == [0, 1, 2]
    assert topic["partitions"][0]["replicas"] == [0]


def test_what_is_there_already_is_an_error_unless_that_is_fine(sparklog: Sparklog) -> None:
    sparklog("topics", "create", "orders")

    again = sparklog("topics", "create", "orders")
    assert (again.status, again.out) == (1, "")
    assert again.err == "sparklog: Topic 'orders' already exists: look at it with: sparklog topics describe\n"
    assert sparklog("topics", "create", "orders", "--if-not-exists").status == 0


def test_lists_align_and_come_as_json(sparklog: Sparklog) -> None:
    empty = sparklog("topics", "list")
    assert (empty.status, empty.out) == (0, "")
    assert "sparklog topics create" in empty.err
    sparklog("topics", "create", "a-topic-of-a-long-name", "--partitions", "12")
    sparklog("topics", "create", "b")

    assert sparklog("topics", "list").out.splitlines() == [
        "TOPIC                   PARTITIONS  RECORDS  BYTES",
        "a-topic-of-a-long-name          12        0      0",
        "b                                1        0      0",
    ]
    assert sparklog("topics", "list", "--json").rows == [
        {"name": "a-topic-of-a-long-name", "partitions": 12, "records": 0, "bytes": 0},
        {"name": "b", "partitions": 1, "records": 0, "bytes": 0},
    ]


def test_descriptions_are_for_people_too(sparklog: Sparklog) -> None:
    sparklog("topics", "create", "orders", "--config", "retention.ms=1000")

    described = sparklog("topics", "describe", "orders", "--configs").out

    assert described.startswith("topic orders: 0 records, 0 bytes; retention.ms=1000\nPARTITION  LEADER")
    assert any(line.split() == ["retention.ms", "1000", "topic"] for line in described.splitlines())


def test_a_topic_that_is_not_there_has_status_1(sparklog: Sparklog) -> None:
    for arguments in (["describe"], ["delete"], ["alter", "--partitions", "2"]):
        missing = sparklog("topics", *arguments, "nope")
        assert (missing.status, missing.out) == (1, "")
        assert "'nope'" in missing.err
        assert missing.err.endswith("see what there is with: sparklog topics list\n")


def test_altering_grows_and_configures(sparklog: Sparklog) -> None:
    sparklog("topics", "create", "orders", "--config", "retention.ms=1000")

    altered = sparklog(
        "topics", "alter", "orders", "--partitions", "4", "--config", "segment.bytes=2097152", "--unset", "retention.ms"
    )

    assert altered.status == 0
    [topic] = sparklog("topics", "describe", "orders", "--json").rows
    assert (len(topic["partitions"]), topic["configs"]) == (4, {"segment.bytes": "2097152"})
    shrunk = sparklog("topics", "alter", "orders", "--partitions", "1")
    assert shrunk.status == 1
    assert "The topic orders currently has 4 partition(s); 1 would not be an increase" in shrunk.err


def test_deleting_takes_several(sparklog: Sparklog) -> None:
    sparklog("topics", "create", "a")
    sparklog("topics", "create", "b")

    assert sparklog("topics", "delete", "a", "b").out == "deleted a, b\n"
    refused = sparklog("topics", "delete", "__consumer_offsets")
    assert refused.status == 1
    assert "all that groups have committed; give --internal" in refused.err
    assert sparklog("topics", "list", "--json").rows == []


def test_deleting_says_what_was_deleted_when_others_are_not_there(sparklog: Sparklog) -> None:
    sparklog("topics", "create", "a")

    partly = sparklog("topics", "delete", "nope", "a", "nada")
    assert (partly.status, partly.out) == (1, "deleted a\n")
    assert "'nope'" in partly.err
    assert "'nada'" in partly.err


def test_a_topic_that_the_cluster_store_had_lost_is_shown_as_unsure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with start_broker(tmp_path) as broker:
        assert run(["topics", "create", "kept", "--bootstrap", broker.bootstrap]) == 0
    for path in tmp_path.glob("**/cluster.sqlite*"):
        path.unlink()
    with start_broker(tmp_path) as broker:
        assert run(["topics", "create", "new", "--bootstrap", broker.bootstrap]) == 0
        capsys.readouterr()
        described = {}
        for name in ("kept", "new"):
            assert run(["topics", "describe", name, "--json", "--bootstrap", broker.bootstrap]) == 0
            described[name] = json.loads(capsys.readouterr().out)
        assert {name: found["unsure"] for name, found in described.items()} == {"kept": True, "new": False}
        assert run(["topics", "describe", "kept", "--bootstrap", broker.bootstrap]) == 0
        assert "unsure: the cluster store had lost this topic" in capsys.readouterr().out
        assert run(["topics", "describe", "new", "--bootstrap", broker.bootstrap]) == 0
        assert "unsure" not in capsys.readouterr().out
