"""`sparklog cluster`, against four brokers and partitions that move between them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.cli import run
from sparklog.client import Admin, Producer
from sparklog.testing import RunningCluster, start_cluster
from support.clients.command_result import CommandResult
from support.names import unique
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow
Sparklog = Callable[..., CommandResult]
NUMBERS = itertools.count()
HISTORY = "__cluster_history"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with start_cluster(4, default_replication_factor=2, controlled_shutdown_retry_backoff_ms=100) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: RunningCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as client:
        yield client


@pytest.fixture
def sparklog(
    cluster: RunningCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., CommandResult]:
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP", cluster.bootstrap.partition(",")[0])

    def command(*arguments: str) -> CommandResult:
        status = run(arguments)
        printed = capsys.readouterr()
        return CommandResult(status, printed.out, printed.err)

    return command


@pytest.fixture
def topic(cluster: RunningCluster, admin: Admin) -> Iterator[str]:
    """A topic of three partitions with records in them."""
    name = f"t{next(NUMBERS)}"
    admin.create_topic(name, partitions=3, replication_factor=2)
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(300):
            producer.send(name, b"%d" % number, partition=number % 3)
    yield name
    admin.delete_topics([name])


def replicas(admin: Admin, topic: str) -> list[tuple[int, ...]]:
    return [part.replicas for part in admin.describe_topics([topic])[0].partitions]


def partitions_on(admin: Admin, broker: int, topic: str) -> list[int]:
    return [part.partition for log_dir in admin.describe_log_dirs([topic])[broker] for part in log_dir.partitions]


def until(is_so: Callable[[], bool]) -> None:
    """Repeat a command until its output shows the work of the brokers."""
    wait_until(is_so, "the brokers have done it")


def test_brokers_say_what_they_lead_and_have(sparklog: Sparklog, admin: Admin, topic: str) -> None:
    until(lambda: HISTORY in {each.name for each in admin.list_topics(include_internal=True)})
    partitions = [part for each in admin.describe_topics([topic, HISTORY]) for part in each.partitions]
    rows = sparklog("cluster", "brokers", "--json").rows
    assert [row["broker"] for row in rows] == [1, 2, 3, 4]
    assert sum(row["leads"] for row in rows) == sum(row["preferred"] for row in rows) == len(partitions)
    assert sum(row["replicas"] for row in rows) == sum(len(part.replicas) for part in partitions)
    assert [row["state"] for row in rows].count("controller") == 1
    assert sparklog("cluster", "brokers").out.split()[:3] == ["BROKER", "STATE", "CORDONED"]


def test_the_controller_is_the_one_that_brokers_know(sparklog: Sparklog, cluster: RunningCluster) -> None:
    [row] = sparklog("cluster", "controller", "--json").rows
    assert row["controller"] == cluster.controller_id
    assert sparklog("cluster", "controller").out == f"broker {row['controller']} at {row['address']}\n"


def test_any_broker_has_the_controller_do_what_it_is_asked(cluster: RunningCluster, admin: Admin, topic: str) -> None:
    name = TopicPartition(topic, 0)
    second, first = replicas(admin, topic)[0]
    for address in cluster.bootstrap.split(","):
        first, second = second, first
        with Admin(bootstrap_servers=address) as one:
            assert one.alter_partition_reassignments({name: (second, first)}) == {}
            until(lambda one=one, asked=(second, first): replicas(one, topic)[0] == asked)
            assert one.elect_leaders([name]) == {name: None}
            until(lambda one=one, asked=second: one.describe_topics([topic])[0].partitions[0].leader == asked)
            [error] = one.alter_partition_reassignments({name: (9,)}).values()
            assert error.name == "INVALID_REPLICA_ASSIGNMENT"
            assert str(error) == "brokers 9 are not alive; these are: 1, 2, 3, 4"


def test_partitions_move_by_a_plan_and_verify_says_when_they_are_there(
    sparklog: Sparklog, admin: Admin, topic: str, tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.json")
    before = replicas(admin, topic)
    planned = sparklog("cluster", "reassign", "plan", "--topics", topic, "--brokers", "3,4", "--output", plan)
    assert planned.status == 0
    assert f"sparklog cluster reassign execute {plan}" in planned.err
    targets = {part["partition"]: tuple(part["replicas"]) for part in json.loads(Path(plan).read_text())["partitions"]}
    assert all({*target} == {3, 4} for target in targets.values())

    elsewhere = sparklog("cluster", "reassign", "verify", plan)
    assert elsewhere.status == 1
    assert "are elsewhere and do not move" in elsewhere.err
    moved = sparklog("cluster", "reassign", "execute", plan, "--wait")
    assert (moved.status, moved.out.splitlines()[0]) == (0, f"moving {len(targets)} partitions")
    assert [targets.get(number, before[number]) for number in range(3)] == replicas(admin, topic)

    verified = sparklog("cluster", "reassign", "verify", plan, "--json")
    assert verified.status == 0
    assert {row["state"] for row in verified.rows} == {"done"}
    assert {row["copied"] for row in verified.rows} == {100}
    cancelled = sparklog("cluster", "reassign", "cancel", plan)
    assert (cancelled.status, cancelled.out) == (0, f"cancelled 0 moves; {len(targets)} partitions were not moving\n")


def test_a_throttle_is_set_for_the_move_and_removed_after_it(
    sparklog: Sparklog, admin: Admin, topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    [first, *_] = replicas(admin, topic)
    target = [broker for broker in (1, 2, 3, 4) if broker not in first]
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": target}]}))

    executed = sparklog("cluster", "reassign", "execute", str(plan), "--throttle", "50MiB")
    assert executed.status == 0
    configs = admin.describe_configs(topic=topic)
    assert configs["leader.replication.throttled.replicas"].value == ",".join(f"0:{broker}" for broker in first)
    assert configs["follower.replication.throttled.replicas"].value == ",".join(f"0:{broker}" for broker in target)
    assert admin.describe_configs(broker=target[0])["leader.replication.throttled.rate"].value == str(50 << 20)

    until(lambda: sparklog("cluster", "reassign", "verify", str(plan)).status == 0)
    configs = admin.describe_configs(topic=topic)
    assert configs["leader.replication.throttled.replicas"].source == "default"
    assert admin.describe_configs(broker=target[0])["leader.replication.throttled.rate"].source == "default"


def test_a_broker_that_stops_is_missed_and_comes_back(
    sparklog: Sparklog, admin: Admin, cluster: RunningCluster, topic: str
) -> None:
    assert sparklog("cluster", "under-replicated").status == 0
    stopped = next(broker for broker in replicas(admin, topic)[0] if broker != cluster.controller_id)
    cluster.stop_broker(stopped)
    try:
        missing = sparklog("cluster", "under-replicated", "--json")
        assert missing.status == 1
        assert {broker for row in missing.rows for broker in row["missing"]} == {stopped}
        assert sparklog("cluster", "under-replicated", "--offline").status == 0
        assert sparklog("cluster", "under-replicated", "--under-min-isr").status == 1
        [down] = [row for row in sparklog("cluster", "brokers", "--json").rows if row["broker"] == stopped]
        assert (down["state"], down["leads"]) == ("down", 0)
    finally:
        cluster.start_broker(stopped)
    until(lambda: sparklog("cluster", "under-replicated").status == 0)
    elected = sparklog("cluster", "elect-leaders", "--all")
    assert elected.status == 0
    rows = sparklog("cluster", "brokers", "--json").rows
    assert [row["leads"] for row in rows] == [row["preferred"] for row in rows]


def test_what_moved_while_its_broker_was_down_is_not_left_behind(
    admin: Admin, cluster: RunningCluster, topic: str
) -> None:
    name = TopicPartition(topic, 0)
    stopped = next(broker for broker in replicas(admin, topic)[0] if broker != cluster.controller_id)
    [other] = [broker for broker in replicas(admin, topic)[0] if broker != stopped]
    cluster.stop_broker(stopped)
    try:
        assert admin.alter_partition_reassignments({name: (other,)}) == {}
        until(lambda: not admin.list_partition_reassignments())
    finally:
        cluster.start_broker(stopped)
    until(lambda: 0 not in partitions_on(admin, stopped, topic))
    assert replicas(admin, topic)[0] == (other,)


def test_a_broker_is_drained(sparklog: Sparklog, admin: Admin, topic: str) -> None:
    nobody = sparklog("cluster", "drain", "77", "--execute")
    assert nobody.status == 1
    assert "no broker 77 is there, nor a partition that is assigned to it; there are 1, 2, 3, 4" in nobody.err
    shown = sparklog("cluster", "drain", "4")
    assert shown.status == 0
    assert "give --execute" in shown.err or "nothing is to be moved" in shown.err
    assert sparklog("cluster", "drain", "4", "--execute", "--wait").status == 0
    assert all(4 not in each for each in replicas(admin, topic))
    assert sparklog("cluster", "drain", "4").err == "nothing is to be moved\n"

    [row] = [row for row in sparklog("cluster", "brokers", "--json").rows if row["cordoned"]]
    assert row["broker"] == 4

    cordoned, taking = unique("cordoned"), unique("taking")
    admin.create_topic(cordoned, partitions=8)
    admin.create_partitions(cordoned, 16)
    assert not any(4 in each for each in replicas(admin, cordoned))
    refused = sparklog("topics", "create", taking, "--replication-factor", "4")
    assert refused.status == 1
    assert "Replication factor: 4 larger than available brokers: 3" in refused.err
    assert sparklog("cluster", "uncordon", "77").status == 1
    assert sparklog("cluster", "uncordon", "4").status == 0
    admin.create_topic(taking, partitions=8)
    assert any(4 in each for each in replicas(admin, taking))

    leader = replicas(admin, topic)[0][0]
    assert sparklog("cluster", "drain", str(leader), "--leaders-only", "--execute", "--wait").status == 0
    until(lambda: leader not in [part.leader for part in admin.describe_topics([topic])[0].partitions])


def test_nothing_moves_to_a_cordoned_broker_that_is_not_named(
    sparklog: Sparklog, admin: Admin, topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"

    def targets(*arguments: str) -> set[int]:
        plan.write_text("{}")
        assert sparklog("cluster", *arguments, "--output", str(plan)).status == 0
        return {broker for part in json.loads(plan.read_text())["partitions"] for broker in part["replicas"]}

    assert sparklog("cluster", "drain", "4", "--execute", "--wait").status == 0
    try:
        assert 4 not in targets("reassign", "plan", "--all-topics")
        for line in sparklog("cluster", "drain", "3", "--json").out.splitlines():
            assert all(4 not in part["replicas"] for part in json.loads(line)["partitions"])
        assert targets("reassign", "plan", "--topics", topic, "--brokers", "3,4") == {3, 4}
    finally:
        assert sparklog("cluster", "uncordon", "4").status == 0


def test_a_broker_that_is_down_is_drained_and_gets_nothing_when_it_is_back(
    sparklog: Sparklog, admin: Admin, cluster: RunningCluster, topic: str
) -> None:
    stopped = next(broker for broker in (4, 3) if broker != cluster.controller_id)
    cluster.stop_broker(stopped)
    try:
        assert sparklog("cluster", "drain", str(stopped), "--execute", "--wait").status == 0
        [row] = [row for row in sparklog("cluster", "brokers", "--json").rows if row["broker"] == stopped]
        assert (row["state"], row["cordoned"], row["replicas"]) == ("down", True, 0)
    finally:
        cluster.start_broker(stopped)
    until(lambda: stopped in [broker.id for broker in admin.describe_cluster().brokers])
    assert sparklog("cluster", "uncordon", "77").status == 1
    try:
        cordoned = unique("cordoned")
        admin.create_topic(cordoned, partitions=8)
        assert not any(stopped in each for each in replicas(admin, cordoned))
    finally:
        assert sparklog("cluster", "uncordon", str(stopped)).status == 0


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["reassign", "plan"], 2, "--all-topics"),
        (["reassign", "plan", "--all-topics", "--brokers", "1,x"], 2, "1,2,3"),
        (["reassign", "plan", "--all-topics", "--brokers", "1,9"], 1, "broker 9 is not up; these are: 1, 2, 3, 4"),
        (["reassign", "execute", "/no/such/plan"], 1, "/no/such/plan"),
        (["reassign", "execute", __file__], 2, "sparklog cluster reassign plan --output"),
        (["reassign", "execute", "x", "--throttle", "fast"], 2, "50MiB"),
        (["elect-leaders"], 2, "--all"),
        (["elect-leaders", "--topic", "a:b"], 2, "TOPIC:0,1"),
    ],
)
def test_what_is_wrong_says_what_to_do(sparklog: Sparklog, arguments: list[str], status: int, said: str) -> None:
    ended = sparklog("cluster", *arguments)
    assert (ended.status, ended.out) == (status, "")
    assert said in ended.err


def test_the_history_says_who_was_elected_and_why(sparklog: Sparklog, topic: str) -> None:
    wanted = ("cluster", "history", "--topic", topic, "--partition", "0", "--kind", "leader elected")
    [elected] = wait_until(lambda: sparklog(*wanted, "--json").rows, "the history tells of the election")
    assert (elected["topic"], elected["partition"], elected["reason"]) == (topic, 0, "new")
    line = sparklog(*wanted).out
    assert f"leader elected          {topic}-0  leader={elected['leader']} " in line
    assert not sparklog(*wanted, "--since", "2100-01-01").out
    assert sparklog("cluster", "history", "--partition", "0").status != 0


def test_a_topic_s_partitions_that_nobody_can_describe_are_named(
    cluster: RunningCluster, admin: Admin, sparklog: Sparklog
) -> None:
    name = unique("away")
    admin.create_topic(name, partitions=4, replication_factor=1, configs={"min.insync.replicas": "1"})
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for partition in range(4):
            producer.send(name, b"v", partition=partition).result(PATIENCE_S)
    leaders = {part.leader: part.partition for part in admin.describe_topics([name])[0].partitions}
    away = max(leaders.keys() - {cluster.controller_id})
    whole = sparklog("topics", "describe", name)
    assert whole.out.startswith(f"topic {name}: 4 records")
    assert "not known" not in whole.out

    cluster.stop_broker(away)
    try:
        described = sparklog("topics", "describe", name)
        [found] = sparklog("topics", "describe", name, "--json").rows
    finally:
        cluster.start_broker(away)
    assert described.status == 0
    assert described.out.startswith(f"topic {name}: 3 records")
    reason = f"LEADER_NOT_AVAILABLE: {name}-{leaders[away]} has no leader at the moment"
    assert described.out.splitlines()[-2:] == [
        f"partition {leaders[away]}: {reason}",
        "not known, and not in the sums: what is in 1 partition",
    ]
    assert [part["error"] for part in found["partitions"] if part["error"]] == [reason]
