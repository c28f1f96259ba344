"""`sparklog acls`, on a broker with an authorizer and the command line as a super user."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import StringIO

import pytest

from sparklog.base.config import STANDARD_AUTHORIZER
from sparklog.testing import RunningBroker, start_broker
from support.clients.command_result import CommandResult

pytestmark = pytest.mark.slow

Sparklog = Callable[..., CommandResult]


@pytest.fixture
def sparklog_broker(tmp_path) -> Iterator[RunningBroker]:
    with start_broker(
        tmp_path, authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS;User:admin"
    ) as broker:
        yield broker


def lines(result: CommandResult) -> list[str]:
    assert result.status == 0, result.err
    return result.out.splitlines()


def test_a_producer_gets_what_a_producer_needs(sparklog: Sparklog) -> None:
    added = lines(sparklog("acls", "add", "--allow-principal", "alice", "--producer", "--topic", "orders"))
    assert added == [
        f"added: ALLOW User:alice from * {operation} on TOPIC orders (LITERAL)"
        for operation in ("WRITE", "DESCRIBE", "CREATE")
    ]
    shown = [json.loads(line) for line in lines(sparklog("acls", "list", "--topic", "orders", "--json"))]
    assert [each["operation"] for each in shown] == ["Write", "Create", "Describe"]


def test_a_consumer_gets_what_a_consumer_needs(sparklog: Sparklog) -> None:
    lines(sparklog("acls", "add", "--allow-principal", "bob", "--consumer", "--topic", "t", "--group", "g"))
    shown = [json.loads(line) for line in lines(sparklog("acls", "list", "--principal", "bob", "--json"))]
    assert [(each["resource"], each["operation"]) for each in shown] == [
        ("Topic", "Read"), ("Topic", "Describe"), ("Group", "Read"),
    ]  # fmt: skip


def test_a_list_shows_every_acl_that_applies_to_a_resource(sparklog: Sparklog) -> None:
    add = ("acls", "add", "--allow-principal", "alice", "--operation", "Read")
    lines(sparklog(*add, "--topic", "raw-", "--resource-pattern-type", "prefixed"))
    lines(sparklog(*add, "--topic", "*"))
    lines(sparklog(*add, "--topic", "others"))
    shown = lines(sparklog("acls", "list", "--topic", "raw-orders"))
    assert [line.split()[1] for line in shown[1:]] == ["*", "raw-"]


def test_why_names_the_rule_that_decides(sparklog: Sparklog) -> None:
    lines(sparklog("acls", "add", "--allow-principal", "alice", "--operation", "All", "--topic", "orders"))
    lines(
        sparklog(
            "acls", "add", "--deny-principal", "User:*", "--deny-host", "10.0.0.0/8", "--operation", "Write", "--topic",
            "ord", "--resource-pattern-type", "prefixed",
        )
    )  # fmt: skip
    ask = ("acls", "why", "alice", "Write", "topic:orders")
    assert lines(sparklog(*ask)) == [
        "User:alice may Write Topic orders from 127.0.0.1: ALLOW User:alice from * ALL on TOPIC orders (LITERAL)"
    ]
    denied = sparklog(*ask, "--host", "10.1.2.3")
    assert denied.status == 1
    assert denied.out.strip().endswith("DENY User:* from 10.0.0.0/8 WRITE on TOPIC ord (PREFIXED)")
    assert "the resource has no ACL" in sparklog("acls", "why", "alice", "Read", "group:g").out
    assert "super user" in sparklog("acls", "why", "admin", "Alter", "cluster").out


def test_removal_shows_what_goes_and_asks(sparklog: Sparklog, monkeypatch: pytest.MonkeyPatch) -> None:
    lines(sparklog("acls", "add", "--allow-principal", "alice", "--producer", "--topic", "orders"))
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    refused = sparklog("acls", "remove", "--topic", "orders")
    assert refused.status == 1
    assert "remove these 3 ACLs?" in refused.err
    removed = lines(sparklog("acls", "remove", "--topic", "orders", "--operation", "write", "--yes"))
    assert removed == ["removed: ALLOW User:alice from * WRITE on TOPIC orders (LITERAL)"]
    assert len(lines(sparklog("acls", "list"))) == 3
    nothing = sparklog("acls", "remove", "--topic", "missing", "--yes")
    assert nothing.status == 1
    assert "there is no such ACL" in nothing.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("add", "--operation", "Read", "--topic", "t"), "--allow-principal"),
        (("add", "--allow-principal", "a", "--operation", "Read"), "--topic"),
        (("add", "--allow-principal", "a", "--topic", "t"), "--operation"),
        (("add", "--allow-principal", "a", "--topic", "t", "--operation", "Fly"), "'Fly' is no operation"),
        (("add", "--allow-principal", "a", "--group", "g", "--operation", "Write"), "there is no Write of a Group"),
        (("why", "a", "Read", "queue:q"), "'queue:q' is no resource"),
        (("why", "a", "Write", "group:q"), "there is no Write of a group"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_is_done(
    sparklog: Sparklog, arguments: tuple[str, ...], told: str
) -> None:
    result = sparklog("acls", *arguments)
    assert result.status == 2
    assert told in result.err


def test_a_network_that_is_none_is_told_by_the_broker(sparklog: Sparklog) -> None:
    result = sparklog(
        "acls", "add", "--allow-principal", "a", "--allow-host", "10.0.0.1/8", "--operation", "Read", "--topic", "t"
    )
    assert result.status == 1
    assert "Invalid host 10.0.0.1/8" in result.err


def test_brokers_without_an_authorizer_are_told_apart(sparklog: Sparklog, tmp_path) -> None:
    with start_broker(tmp_path / "open") as broker:
        result = sparklog("acls", "list", "--bootstrap", broker.bootstrap)
    assert result.status == 1
    assert "authorizer.class.name" in result.err
