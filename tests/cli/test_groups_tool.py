"""`sparklog groups`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.testing import RunningBroker, start_broker
from support.clients.command_result import CommandResult
from support.clients.group_members import poll_until

pytestmark = pytest.mark.slow

Sparklog = Callable[..., CommandResult]
PARTITIONS = [TopicPartition("orders", number) for number in range(2)]


@pytest.fixture
def sparklog_broker(tmp_path) -> Iterator[RunningBroker]:
    """A broker whose groups begin at once, with few partitions of the offsets topic."""
    with start_broker(tmp_path, group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1) as broker:
        yield broker


@pytest.fixture(autouse=True)
def billing(sparklog_broker: RunningBroker) -> None:
    """A topic of two partitions with ten records each, and a group that has read three of one of them."""
    with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=2)
        with Producer(bootstrap_servers=sparklog_broker.bootstrap) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number, partition=number % 2, timestamp_ms=1_000_000 + number)
        admin.alter_group_offsets("billing", {PARTITIONS[0]: 3})


def committed(broker: RunningBroker) -> dict[int, int]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        return {item.partition: found.offset for item, found in admin.list_group_offsets("billing").items()}


def test_groups_are_listed(sparklog: Sparklog) -> None:
    assert sparklog("groups", "list").out.splitlines() == ["GROUP    STATE  TYPE", "billing  Empty  classic"]
    assert sparklog("groups", "list", "--json").rows == [{"group": "billing", "state": "Empty", "type": "classic"}]
    none = sparklog("groups", "list", "--state", "Stable")
    assert (none.status, none.out) == (0, "")
    assert "no groups" in none.err


def test_lag_is_shown_in_records_and_in_time(sparklog: Sparklog) -> None:
    shown = sparklog("groups", "describe", "billing").out.splitlines()
    assert shown[0] == "group billing: Empty, classic, 0 members, coordinator 0"
    assert shown[1].split() == ["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "BEHIND", "CLIENT", "HOST"]
    assert shown[2].split()[:5] == ["orders", "0", "3", "10", "7"]
    [described] = sparklog("groups", "describe", "billing", "--json").rows
    [offset] = described["offsets"]
    assert (offset["lag"], offset["client"]) == (7, None)
    assert offset["lag_ms"] > 1_000_000


def test_members_are_shown_with_what_they_read(sparklog: Sparklog, sparklog_broker: RunningBroker) -> None:
    with Consumer(bootstrap_servers=sparklog_broker.bootstrap, group_id="billing", client_id="biller") as consumer:
        consumer.subscribe(["orders"])
        poll_until(lambda: bool(consumer.assignment()), consumer)
        shown = sparklog("groups", "describe", "billing", "--members").out.splitlines()
        assert shown[0] == "group billing: Stable, classic, 1 member, coordinator 0"
        assert shown[2].split()[0] == "biller"
        assert shown[2].endswith("orders-0, orders-1")
        refused = sparklog("groups", "reset", "billing", "--all-topics", "--to-latest", "--execute")
        assert (refused.status, refused.out) == (1, "")
        assert "has members (biller)" in refused.err
        assert sparklog("groups", "delete", "billing").status == 1


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 10}),
        (["--to-offset", "4"], {0: 4, 1: 4}),
        (["--to-offset", "400"], {0: 10, 1: 10}),
        (["--to-datetime", "1000007"], {0: 4, 1: 3}),
        (["--to-datetime", "2026-01-01T00:00"], {0: 10, 1: 10}),
        (["--shift-by", "2"], {0: 5}),
        (["--shift-by", "-100"], {0: 0}),
    ],
)
def test_offsets_are_reset_once_that_is_confirmed(
    sparklog: Sparklog, sparklog_broker: RunningBroker, target: list[str], offsets: dict[int, int]
) -> None:
    planned = sparklog("groups", "reset", "billing", "--topic", "orders", *target, "--json")
    assert planned.status == 0
    assert "--execute" in planned.err
    assert {row["partition"]: row["new_offset"] for row in planned.rows} == offsets
    assert committed(sparklog_broker) == {0: 3}

    done = sparklog("groups", "reset", "billing", "--topic", "orders", *target, "--execute")
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[0].split() == ["TOPIC", "PARTITION", "OFFSET", "NEW", "OFFSET"]
    assert committed(sparklog_broker) == {0: 3} | offsets


def test_some_partitions_or_everything_committed_can_be_chosen(
    sparklog: Sparklog, sparklog_broker: RunningBroker
) -> None:
    sparklog("groups", "reset", "billing", "--topic", "orders:1", "--to-latest", "--execute")
    assert committed(sparklog_broker) == {0: 3, 1: 10}
    sparklog("groups", "reset", "billing", "--all-topics", "--to-earliest", "--execute")
    assert committed(sparklog_broker) == {0: 0, 1: 0}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--topic", "orders"],
        ["--topic", "orders", "--to-earliest", "--to-latest"],
        ["--to-earliest"],
        ["--topic", "orders", "--all-topics", "--to-earliest"],
        ["--topic", "orders:x", "--to-earliest"],
        ["--topic", "orders:7", "--to-earliest"],
        ["--topic", "orders", "--to-datetime", "yesterday"],
    ],
)
def test_a_reset_that_is_not_clear_is_wrong_use(sparklog: Sparklog, arguments: list[str]) -> None:
    ended = sparklog("groups", "reset", "billing", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert "--help" in ended.err


def test_a_deleted_group_is_gone(sparklog: Sparklog) -> None:
    assert sparklog("groups", "delete", "billing").out == "deleted billing\n"
    assert sparklog("groups", "list", "--json").rows == []
    gone = sparklog("groups", "delete", "billing")
    assert (gone.status, gone.out) == (1, "")
