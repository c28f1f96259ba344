"""The audit log: written and omitted decisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.base.acls import AclOperation, AclResourceType
from sparklog.base.config import STANDARD_AUTHORIZER, BrokerConfig
from sparklog.base.errors import ConfigError
from sparklog.security.acls import AclRules, Action, Subject
from sparklog.security.audit_log import ALLOWED_AGAIN_MS, DENIED_AGAIN_MS, MAX_LINES_A_SECOND, AuditLog, open_audit_log
from sparklog.security.authorizer import Authorizer

ALICE = Subject("User:alice", "10.1.2.3")
WRITE_ORDERS = Action(AclOperation.WRITE, AclResourceType.TOPIC, "orders")
READ_ORDERS = Action(AclOperation.READ, AclResourceType.TOPIC, "orders")


class Log:
    """An authorizer with an audit log, and its clock."""

    def __init__(self, **rules: bool) -> None:
        self.lines: list[str] = []
        self.now_ms = 1_700_000_000_000
        self.authorizer = Authorizer(AclRules(**rules), AuditLog(self.lines.append, lambda: self.now_ms))


def test_a_denial_is_written_with_principal_host_action_and_reason() -> None:
    log = Log()
    assert not log.authorizer.is_allowed(ALICE, WRITE_ORDERS)
    [line] = log.lines
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.000Z",
        "principal": "User:alice",
        "host": "10.1.2.3",
        "operation": "WRITE",
        "resource": "TOPIC",
        "name": "orders",
        "allowed": False,
        "reason": "the resource has no ACL, and allow.everyone.if.no.acl.found is false",
        "acl": None,
    }


@pytest.mark.parametrize(("is_allowed", "pause_ms"), [(False, DENIED_AGAIN_MS), (True, ALLOWED_AGAIN_MS)])
def test_a_repeated_decision_is_written_again_after_a_pause(is_allowed: bool, pause_ms: int) -> None:
    log = Log(allow_everyone_if_no_acl_found=is_allowed)
    for _ in range(1_000):
        assert log.authorizer.is_allowed(ALICE, WRITE_ORDERS) is is_allowed
    log.now_ms += pause_ms - 1
    log.authorizer.is_allowed(ALICE, WRITE_ORDERS)
    assert len(log.lines) == 1
    log.now_ms += 1
    log.authorizer.is_allowed(ALICE, WRITE_ORDERS)
    log.authorizer.is_allowed(ALICE, READ_ORDERS)
    assert [json.loads(line)["operation"] for line in log.lines] == ["WRITE", "WRITE", "READ"]


def test_a_client_with_many_requests_does_not_fill_the_disk() -> None:
    log = Log()
    for number in range(MAX_LINES_A_SECOND + 7):
        log.authorizer.is_allowed(ALICE, WRITE_ORDERS._replace(name=f"topic-{number}"))
    assert len(log.lines) == MAX_LINES_A_SECOND
    log.now_ms += 1_000
    log.authorizer.is_allowed(ALICE, READ_ORDERS)
    assert [json.loads(line).get("left_out") for line in log.lines[-2:]] == [7, None]


def test_lines_are_appended_to_a_file_that_may_be_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    config = BrokerConfig(authorizer_class_name=STANDARD_AUTHORIZER, authorizer_audit_log=str(path))
    authorizer = Authorizer.of(config, lambda: 0)
    authorizer.is_allowed(ALICE, WRITE_ORDERS)
    path.rename(tmp_path / "audit.log.1")
    authorizer.is_allowed(ALICE, READ_ORDERS)
    assert json.loads((tmp_path / "audit.log.1").read_text())["operation"] == "WRITE"
    assert json.loads(path.read_text())["operation"] == "READ"


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"authorizer\.audit\.log"):
        open_audit_log(str(tmp_path), lambda: 0)
