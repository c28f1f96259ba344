"""The authorizer of one broker: the cluster's ACLs by the controller's last update, and the configured rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparklog.base.acls import OPERATIONS, AclBinding, AclOperation, AclResourceType
from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import split_principals
from sparklog.security.acls import AclRules, Acls, Action, Subject
from sparklog.security.audit_log import AuditLog, open_audit_log


class Authorizer:
    """Decides on the actions of clients. Used on one event loop."""

    def __init__(self, rules: AclRules, audit_log: AuditLog | None = None, *, is_enabled: bool = True) -> None:
        """is_enabled: whether ACLs are checked; otherwise every client may do everything"""
        self.is_enabled = is_enabled
        self._audit_log = audit_log
        self._acls = Acls((), rules)
        self.version = 0
        """Grows with each change of ACLs."""

    @property
    def is_audited(self) -> bool:
        """Whether there is an audit log: then callers must not cache decisions."""
        return self._audit_log is not None

    @classmethod
    def of(cls, config: BrokerConfig, time_ms: Callable[[], int]) -> Authorizer:
        """Return the authorizer that the configuration asks for; it has no ACLs yet.

        Raises ConfigError if the audit log cannot be opened.
        """
        is_enabled, path = bool(config.authorizer_class_name), config.authorizer_audit_log
        audit_log = open_audit_log(path, time_ms) if is_enabled and path else None
        rules = AclRules(
            super_users=split_principals(config.super_users),
            allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
        )
        return cls(rules, audit_log, is_enabled=is_enabled)

    @property
    def acls(self) -> frozenset[AclBinding]:
        """All ACLs of the cluster, as this broker knows them."""
        return self._acls.bindings

    def set_acls(self, acls: Iterable[AclBinding]) -> None:
        """Replace the ACLs."""
        self._acls = Acls(acls, self._acls.rules)
        self.version += 1

    def is_allowed(self, subject: Subject, action: Action) -> bool:
        """Return whether the subject may do the action."""
        if not self.is_enabled:
            return True
        decision = self._acls.decide(subject, action)
        if self._audit_log:
            self._audit_log.note(subject, action, decision)
        return decision.is_allowed

    def operations(self, subject: Subject, resource_type: AclResourceType, name: str) -> list[AclOperation]:
        """Return the operations that the subject may do on a resource. They are not written to the audit log."""
        return [
            operation
            for operation in OPERATIONS[resource_type]
            if not self.is_enabled or self._acls.decide(subject, Action(operation, resource_type, name)).is_allowed
        ]

    def is_allowed_somewhere(self, subject: Subject, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether the subject may do the operation on some resource of the type, which need not exist."""
        return not self.is_enabled or self._acls.is_allowed_somewhere(subject, operation, resource_type)
