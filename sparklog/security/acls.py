"""Decisions by ACLs, as Apache Kafka's StandardAuthorizer makes them.

    1. A super user may do everything.
    2. An ACL applies if its pattern covers the resource, and its principal, host and operation cover the request. A
       request is denied if an ACL that denies applies; else it is allowed if one that allows applies.
    3. If no ACL applies, `allow.everyone.if.no.acl.found` decides, provided that no ACL covers the resource. Otherwise
       the request is denied.

To allow READ, WRITE, DELETE or ALTER allows DESCRIBE too, and ALTER_CONFIGS allows DESCRIBE_CONFIGS. To deny them
denies these operations only. ALL is every operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from ipaddress import ip_address, ip_network
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct

from sparklog.base.acls import (
    ANY_NAME,
    ANY_USER,
    AclBinding,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)

_IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
_ALLOWING = {
    operation: frozenset((operation, AclOperation.ALL, *_IMPLIED_BY.get(operation, ()))) for operation in AclOperation
}
"""The operations of ACLs that allow an operation."""
_DENYING = {operation: frozenset((operation, AclOperation.ALL)) for operation in AclOperation}

MAX_DECISIONS = 10_000
"""Maximum number of cached decisions; each takes some 300 bytes."""


class Subject(NamedTuple):
    """A client: a principal, such as ``User:alice``, and the address of its host."""

    principal: str
    host: str

    @property
    def user(self) -> str:
        """The principal without its type."""
        return user_of(self.principal)


def user_of(principal: str) -> str:
    """Return a principal without its type, such as alice."""
    return principal.partition(":")[2]


class Action(NamedTuple):
    """An operation on one resource."""

    operation: AclOperation
    resource_type: AclResourceType
    name: str


class DecisionReason(Enum):
    """The reason why a request is allowed or denied."""

    SUPER_USER = "the principal is a super user"
    ACL = "an ACL says so"
    NO_ACL_ALLOWS = "no ACL of the resource allows it"
    NO_ACL_ALLOW_EVERYONE = "the resource has no ACL, and allow.everyone.if.no.acl.found is true"
    NO_ACL = "the resource has no ACL, and allow.everyone.if.no.acl.found is false"


class AuthorizationDecision(NamedTuple):
    """Whether a request is allowed, and why."""

    is_allowed: bool
    reason: DecisionReason
    acl: AclBinding | None = None
    """The deciding ACL; None: the reason is another one."""


class AclRules(Struct, frozen=True, kw_only=True):
    """The rules beside the ACLs, from a broker's configuration."""

    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False


DEFAULT_RULES = AclRules()


class Acls:
    """The ACLs of a cluster, indexed for decisions. Immutable: changed ACLs need a new object.

    A decision looks at the ACLs of the resource's own name, of ``*``, and of those prefixes of the name that have ACLs.
    """

    def __init__(self, bindings: Iterable[AclBinding] = (), rules: AclRules = DEFAULT_RULES) -> None:
        self.bindings = frozenset(bindings)
        self.rules = rules
        self._found: dict[tuple[AclResourceType, PatternType, str], tuple[AclBinding, ...]] = {}
        ordered = sorted(self.bindings, key=lambda each: (_pattern(each), each))
        for pattern, group in groupby(ordered, key=_pattern):
            self._found[pattern] = tuple(group)
        lengths: dict[AclResourceType, set[int]] = {}
        for resource_type, pattern_type, name in self._found:
            if pattern_type is PatternType.PREFIXED:
                lengths.setdefault(resource_type, set()).add(len(name))
        self._prefix_lengths = {resource_type: sorted(found) for resource_type, found in lengths.items()}
        self._decisions: dict[Subject, dict[tuple[int, int, str], AuthorizationDecision]] = {}
        """Keyed by numbers, as members of an enumeration have slow hashes."""
        self._decision_count = 0
        self._somewhere: dict[tuple[Subject, AclOperation, AclResourceType], bool] = {}

    def decide(self, subject: Subject, action: Action) -> AuthorizationDecision:
        """Return whether the subject may do the action, and why."""
        operation, resource_type, name = action
        key = int(operation), int(resource_type), name
        known = self._decisions.get(subject)
        decision = known.get(key) if known else None
        if decision is None:
            decision = self._decide(subject, action)
            if self._decision_count >= MAX_DECISIONS:
                self._decisions.clear()
                self._decision_count = 0
            self._decision_count += 1
            self._decisions.setdefault(subject, {})[key] = decision
        return decision

    def is_allowed(self, subject: Subject, action: Action) -> bool:
        """Return whether the subject may do the action."""
        return self.decide(subject, action).is_allowed

    def is_allowed_somewhere(self, subject: Subject, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether the subject may do the operation on some resource (Authorizer.authorizeByResourceType).

        The resource need not exist. An ACL that allows does not count if another denies all that it allows.
        """
        asked = subject, operation, resource_type
        if asked not in self._somewhere:
            if len(self._somewhere) >= MAX_DECISIONS:
                self._somewhere.clear()
            self._somewhere[asked] = self._decide_somewhere(*asked)
        return self._somewhere[asked]

    def _decide_somewhere(self, subject: Subject, operation: AclOperation, resource_type: AclResourceType) -> bool:
        if subject.principal in self.rules.super_users:
            return True
        of_type = [each for each in self.bindings if each.resource_type is resource_type]
        applying = [each for each in of_type if _concerns(each, subject)]
        denied = [
            each for each in applying if each.permission is AclPermission.DENY and each.operation in _DENYING[operation]
        ]
        if any(each.pattern_type is PatternType.LITERAL and each.name == ANY_NAME for each in denied):
            return False
        if self.rules.allow_everyone_if_no_acl_found and not self._covers_all(resource_type):
            return True
        allowed = (
            each
            for each in applying
            if each.permission is AclPermission.ALLOW and each.operation in _ALLOWING[operation]
        )
        return any(not any(_includes(denial, each) for denial in denied) for each in allowed)

    def covering(self, resource_type: AclResourceType, name: str) -> Iterator[AclBinding]:
        """Yield the ACLs whose pattern covers the resource."""
        found = self._found
        yield from found.get((resource_type, PatternType.LITERAL, name), ())
        if name != ANY_NAME:
            yield from found.get((resource_type, PatternType.LITERAL, ANY_NAME), ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            yield from found.get((resource_type, PatternType.PREFIXED, name[:length]), ())

    def _covers_all(self, resource_type: AclResourceType) -> bool:
        """Return whether an ACL covers all resources of the type."""
        return (resource_type, PatternType.LITERAL, ANY_NAME) in self._found

    def _decide(self, subject: Subject, action: Action) -> AuthorizationDecision:
        if subject.principal in self.rules.super_users:
            return AuthorizationDecision(True, DecisionReason.SUPER_USER)
        allowing, denying = _ALLOWING[action.operation], _DENYING[action.operation]
        allowed: AclBinding | None = None
        has_any = False
        for acl in self.covering(action.resource_type, action.name):
            has_any = True
            if not _concerns(acl, subject):
                continue
            if acl.permission is AclPermission.DENY:
                if acl.operation in denying:
                    return AuthorizationDecision(False, DecisionReason.ACL, acl)
            elif allowed is None and acl.operation in allowing:
                allowed = acl
        if allowed is not None:
            return AuthorizationDecision(True, DecisionReason.ACL, allowed)
        if has_any:
            return AuthorizationDecision(False, DecisionReason.NO_ACL_ALLOWS)
        if self.rules.allow_everyone_if_no_acl_found:
            return AuthorizationDecision(True, DecisionReason.NO_ACL_ALLOW_EVERYONE)
        return AuthorizationDecision(False, DecisionReason.NO_ACL)


def _pattern(acl: AclBinding) -> tuple[AclResourceType, PatternType, str]:
    return acl.resource_type, acl.pattern_type, acl.name


def _concerns(acl: AclBinding, subject: Subject) -> bool:
    """Return whether the ACL is about this principal at this host."""
    if acl.principal not in (subject.principal, ANY_USER):
        return False
    return acl.host in (ANY_NAME, subject.host) or ("/" in acl.host and _is_within(subject.host, acl.host))


def _is_within(host: str, network: str) -> bool:
    try:
        return ip_address(host) in ip_network(network)
    except ValueError:  # the host is no address, as that of an in-process client
        return False


def _includes(one: AclBinding, other: AclBinding) -> bool:
    """Return whether the pattern of `one` covers every resource that the pattern of `other` covers."""
    is_literal = other.pattern_type is PatternType.LITERAL
    if one.pattern_type is PatternType.PREFIXED:
        return other.name.startswith(one.name) and not (is_literal and other.name == ANY_NAME)
    return one.name == ANY_NAME or (is_literal and one.name == other.name)
