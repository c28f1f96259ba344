"""Decisions by ACLs: those of Kafka's StandardAuthorizer, for each of its rules, and against a model."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.acls import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from sparklog.base.errors import InvalidRequest
from sparklog.security.acls import AclRules, Acls, Action, DecisionReason, Subject

ALICE = Subject("User:alice", "10.1.2.3")
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
ALL, READ, WRITE, DESCRIBE = AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def acl(
    permission: AclPermission,
    operation: AclOperation,
    name: str,
    pattern: PatternType = LITERAL,
    *,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: AclResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(resource_type, name, pattern, principal, host, operation, permission)


def may(acls: Acls, operation: AclOperation, name: str, subject: Subject = ALICE) -> bool:
    return acls.is_allowed(subject, Action(operation, TOPIC, name))


def test_nothing_is_allowed_without_an_acl() -> None:
    decision = Acls().decide(ALICE, Action(READ, TOPIC, "orders"))
    assert (decision.is_allowed, decision.reason) == (False, DecisionReason.NO_ACL)


def test_a_super_user_may_do_what_an_acl_denies() -> None:
    acls = Acls([acl(DENY, ALL, "*")], AclRules(super_users=frozenset({"User:alice"})))
    decision = acls.decide(ALICE, Action(WRITE, TOPIC, "orders"))
    assert (decision.is_allowed, decision.reason) == (True, DecisionReason.SUPER_USER)


def test_a_denial_wins_over_permission_whichever_pattern_is_closer() -> None:
    acls = Acls([acl(ALLOW, READ, "orders"), acl(DENY, READ, "ord", PREFIXED)])
    decision = acls.decide(ALICE, Action(READ, TOPIC, "orders"))
    assert not decision.is_allowed
    assert str(decision.acl) == "DENY User:alice from * READ on TOPIC ord (PREFIXED)"


@pytest.mark.parametrize(
    ("name", "pattern", "covered", "not_covered"),
    [
        ("orders", LITERAL, "orders", "orders-eu"),
        ("orders", PREFIXED, "orders-eu", "order"),
        ("orders", PREFIXED, "orders", "Orders"),
        ("*", LITERAL, "anything", None),
        ("*", PREFIXED, "*", "anything"),
    ],
)
def test_a_pattern_covers_its_resources_alone(
    name: str, pattern: PatternType, covered: str, not_covered: str | None
) -> None:
    acls = Acls([acl(ALLOW, READ, name, pattern)])
    assert may(acls, READ, covered)
    assert not_covered is None or not may(acls, READ, not_covered)


def test_acls_of_other_resource_types_do_not_apply() -> None:
    acls = Acls([acl(ALLOW, READ, "orders", resource_type=GROUP)])
    assert not may(acls, READ, "orders")


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_some_operations_allow_describe_and_deny_no_more_than_themselves(operation: AclOperation) -> None:
    assert may(Acls([acl(ALLOW, operation, "orders")]), DESCRIBE, "orders")
    assert may(Acls([acl(DENY, operation, "orders"), acl(ALLOW, DESCRIBE, "orders")]), DESCRIBE, "orders")


def test_alter_configs_allows_describe_configs_and_not_describe() -> None:
    acls = Acls([acl(ALLOW, AclOperation.ALTER_CONFIGS, "orders")])
    assert may(acls, AclOperation.DESCRIBE_CONFIGS, "orders")
    assert not may(acls, DESCRIBE, "orders")


@pytest.mark.parametrize(
    ("host", "is_covered"),
    [
        ("*", True),
        ("10.1.2.3", True),
        ("10.1.2.4", False),
        ("10.1.0.0/16", True),
        ("10.2.0.0/16", False),
        ("::/0", False),
    ],
)
def test_hosts_are_addresses_or_networks(host: str, is_covered: bool) -> None:
    assert may(Acls([acl(ALLOW, READ, "orders", host=host)]), READ, "orders") is is_covered


def test_acls_for_all_users_apply_to_every_principal() -> None:
    acls = Acls([acl(ALLOW, READ, "orders", principal="User:*")])
    assert may(acls, READ, "orders", Subject("User:ANONYMOUS", "127.0.0.1"))


def test_allow_everyone_if_no_acl_found_allows_uncovered_resources() -> None:
    acls = Acls([acl(ALLOW, READ, "orders")], AclRules(allow_everyone_if_no_acl_found=True))
    assert acls.decide(ALICE, Action(WRITE, TOPIC, "orders")).reason is DecisionReason.NO_ACL_ALLOWS
    assert acls.decide(ALICE, Action(WRITE, TOPIC, "others")).reason is DecisionReason.NO_ACL_ALLOW_EVERYONE


NAMES = ["a", "ab", "abc", "b", "*"]
PRINCIPALS = ["User:alice", "User:bob", "User:*"]
HOSTS = ["*", "10.1.2.3", "10.0.0.0/8"]
SOME = [ALL, READ, DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS]
bindings = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(SOME),
    st.sampled_from([ALLOW, DENY]),
)
subjects = st.builds(Subject, st.sampled_from(PRINCIPALS[:2]), st.sampled_from(["10.1.2.3", "11.1.2.3"]))
IMPLIED = {DESCRIBE: {READ}, AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS}}


def model(acls: list[AclBinding], rules: AclRules, subject: Subject, action: Action) -> bool:
    """The rules of StandardAuthorizer, in the words of its documentation."""
    covering = [
        each
        for each in acls
        if each.resource_type is action.resource_type
        and (
            (each.pattern_type is PREFIXED and action.name.startswith(each.name))
            or (each.pattern_type is LITERAL and each.name in ("*", action.name))
        )
    ]
    about = [
        each
        for each in covering
        if each.principal in ("User:*", subject.principal)
        and (each.host in ("*", subject.host) or (each.host == "10.0.0.0/8" and subject.host.startswith("10.")))
    ]
    if any(each.permission is DENY and each.operation in (ALL, action.operation) for each in about):
        return False
    allowing = {ALL, action.operation} | IMPLIED.get(action.operation, set())
    if any(each.permission is ALLOW and each.operation in allowing for each in about):
        return True
    return not covering and rules.allow_everyone_if_no_acl_found


@pytest.mark.slow
@given(st.lists(bindings, max_size=6), st.booleans(), subjects, st.sampled_from(SOME[1:]))
def test_decisions_are_those_of_the_model(
    given_acls: list[AclBinding], allows_everyone: bool, subject: Subject, operation: AclOperation
) -> None:
    rules = AclRules(allow_everyone_if_no_acl_found=allows_everyone)
    acls = Acls(given_acls, rules)
    for resource_type, name in product((TOPIC, GROUP), ("a", "ab", "abcd", "b", "other")):
        action = Action(operation, resource_type, name)
        assert acls.is_allowed(subject, action) is model(given_acls, rules, subject, action), action


@pytest.mark.slow
@given(st.lists(bindings, max_size=6), st.booleans(), subjects, st.sampled_from(SOME[1:]))
def test_what_is_allowed_somewhere_is_allowed_for_some_name(
    given_acls: list[AclBinding], allows_everyone: bool, subject: Subject, operation: AclOperation
) -> None:
    acls = Acls(given_acls, AclRules(allow_everyone_if_no_acl_found=allows_everyone))
    names = ["a", "ab", "abc", "b", "bx", "ax", "abx", "abcx", "*x", "x"]
    expected = any(acls.is_allowed(subject, Action(operation, TOPIC, name)) for name in names)
    assert acls.is_allowed_somewhere(subject, operation, TOPIC) is expected


def test_a_denial_of_a_prefix_that_is_a_star_denies_that_prefix() -> None:
    acls = Acls([acl(ALLOW, READ, "*", PREFIXED), acl(DENY, READ, "*", PREFIXED)])
    assert not acls.is_allowed_somewhere(ALICE, READ, TOPIC)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (AclBindingFilter(), {"orders", "ord", "*"}),
        (AclBindingFilter(name="orders"), {"orders"}),
        (AclBindingFilter(name="orders", pattern_type=MATCH), {"orders", "ord", "*"}),
        (AclBindingFilter(name="ord", pattern_type=MATCH), {"ord", "*"}),
        (AclBindingFilter(name="orders", pattern_type=PREFIXED), set()),
        (AclBindingFilter(pattern_type=PREFIXED), {"ord"}),
        (AclBindingFilter(resource_type=GROUP), set()),
        (AclBindingFilter(operation=WRITE), {"ord"}),
        (AclBindingFilter(permission=DENY), {"*"}),
        (AclBindingFilter(principal="User:bob"), {"*"}),
        (AclBindingFilter(host="10.0.0.1"), set()),
    ],
)
def test_filters_select_as_kafkas_do(chosen: AclBindingFilter, expected: set[str]) -> None:
    there = [acl(ALLOW, READ, "orders"), acl(ALLOW, WRITE, "ord", PREFIXED), acl(DENY, READ, "*", principal="User:bob")]
    assert {each.name for each in there if chosen.matches(each)} == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (acl(ALLOW, READ, ""), "name should not be empty"),
        (acl(ALLOW, AclOperation.ANY, "orders"), "Invalid operation ANY"),
        (acl(ALLOW, READ, "orders", MATCH), "Invalid patternType MATCH"),
        (acl(AclPermission.UNKNOWN, READ, "orders"), "Invalid permissionType UNKNOWN"),
        (acl(ALLOW, READ, "orders", resource_type=AclResourceType.ANY), "Invalid resourceType ANY"),
        (acl(ALLOW, READ, "orders", resource_type=AclResourceType.CLUSTER), "kafka-cluster"),
        (acl(ALLOW, READ, "orders", principal="alice"), "Could not parse principal"),
        (acl(ALLOW, READ, "orders", host="10.0.0.1/8"), "Invalid host 10.0.0.1/8"),
        (acl(ALLOW, READ, "orders", host=""), "Host should not be empty"),
    ],
)
def test_invalid_acls_are_refused(wrong: AclBinding, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        wrong.check()
